"""`Dataset`: a source of tasks over rows that somebody else wrote, from a file, a folder or the Hugging Face hub.

Four steps, top to bottom: rows are read as plain dicts; the usual column names are recognised and become a `Task`;
tasks are split by the hash of their prompt, so a prompt is never in both splits; a reply is judged by its final answer.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from burnish.nouns import Message, Task, Verdict
from burnish.randomness import key_of
from burnish.tasks.rewards import final_answer, same_answer
from burnish.tasks.source import SPLITS, NoVerifier

Row = dict[str, Any]

# ---------------------------------------------------------------------------------------------------- reading rows

_HELDOUT_NAMES = ("test", "validation", "valid", "val", "dev", "eval", "heldout")  # the first that exists is used
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?(:[\w.-]+)?")


def _jsonl(path: Path) -> list[Row]:
    opener = gzip.open if path.suffix == ".gz" else open
    rows = []
    with opener(path, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                try:
                    rows.append(json.loads(line))
                except json.JSONDecodeError as error:
                    raise ValueError(f"{path}, line {number}: not valid JSON ({error.msg}); fix that line") from None
    return rows


def _json(path: Path) -> list[Row]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{path}, line {error.lineno}: not valid JSON ({error.msg}); one object a line is .jsonl"
        ) from None
    if isinstance(content, dict):  # {"data": [...]}: the one list inside is meant
        lists = [value for value in content.values() if isinstance(value, list)]
        content = lists[0] if len(lists) == 1 else content
    if not isinstance(content, list):
        raise ValueError(f"{path}: holds a JSON {type(content).__name__}, not a list of rows; write [{{...}}, {{...}}]")
    return content


def _parquet(path: Path) -> list[Row]:
    try:
        import pyarrow.parquet
    except ImportError:
        raise ValueError(f"reading {path} needs pyarrow; install it with: pip install 'burnish[data]'") from None
    try:
        return pyarrow.parquet.ParquetFile(path).read().to_pylist()
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path}: not a readable Parquet file ({error}); write it again") from None


def _csv(path: Path) -> list[Row]:
    with path.open(newline="", encoding="utf-8-sig") as lines:
        csv.field_size_limit(2**31 - 1)
        rows = list(csv.DictReader(lines))
    for number, row in enumerate(rows, 1):
        if None in row:
            raise ValueError(f"{path}, row {number}: has more cells than the header; quote cells that hold commas")
    return rows


READERS: dict[str, Callable[[Path], list[Row]]] = {
    ".jsonl": _jsonl,
    ".jsonl.gz": _jsonl,
    ".json": _json,
    ".parquet": _parquet,
    ".csv": _csv,
}


def _reader(path: Path) -> Callable[[Path], list[Row]] | None:
    return next((read for suffix, read in READERS.items() if path.name.endswith(suffix)), None)


def _file(path: Path) -> list[Row]:
    """The rows of one file."""
    read = _reader(path)
    if read is None:
        raise ValueError(f"{path}: unknown kind of file; the kinds that can be read are {', '.join(READERS)}")
    try:
        return read(path)
    except (UnicodeDecodeError, gzip.BadGzipFile, EOFError) as error:
        raise ValueError(f"{path}: cannot be read as UTF-8 text ({error}); write it again") from None


def _hugging_face(name: str, *, on_disk: bool) -> dict[str, list[Row]]:
    """A dataset through the `datasets` library; `owner/name:config` names one of a hub dataset's configurations."""
    try:
        import datasets
    except ImportError:
        raise ValueError(f"loading {name!r} needs datasets; install it with: pip install 'burnish[data]'") from None
    base, _, config = name.partition(":")
    try:
        loaded = datasets.load_from_disk(name) if on_disk else datasets.load_dataset(base, config or None)
    except Exception as error:  # the library raises many kinds; each means that the name did not become rows
        why = str(error).strip().partition("\n")[0]
        fix = "check the folder" if on_disk else f"no file has that name either; pass a {', '.join(READERS)} file"
        raise ValueError(f"cannot load dataset {name!r} ({type(error).__name__}: {why}); {fix}") from error
    parts = loaded if isinstance(loaded, Mapping) else {"train": loaded}
    return {str(part): list(rows) for part, rows in parts.items()}


def _folder(path: Path) -> dict[str, list[Row]]:
    """Every readable file below a folder, under the split its name begins with (`test-00000.parquet`), else train."""
    if any((path / name).exists() for name in ("dataset_dict.json", "state.json")):
        return _hugging_face(str(path), on_disk=True)
    parts: dict[str, list[Row]] = {}
    for file in sorted(path.rglob("*")):
        if _reader(file) and file.is_file():
            stem = re.split(r"[-_.]", file.name.lower())[0]
            parts.setdefault(stem if stem in _HELDOUT_NAMES else "train", []).extend(_file(file))
    if not parts:
        raise ValueError(f"folder {path} holds no dataset; it should hold {', '.join(READERS)} files")
    return parts


def read_rows(name: str) -> dict[str, list[Row]]:
    """All rows of a file, a folder or a hub dataset, by the split they came in ("train" where there is none)."""
    path = Path(name).expanduser()
    if path.is_dir():
        return _folder(path)
    if path.is_file():
        return {"train": _file(path)}
    if _reader(path) or not _HUB_NAME.fullmatch(name) or name.startswith((".", "~")):
        raise ValueError(f"no file or folder {name!r}; check the path (it is looked up from {Path.cwd()})")
    return _hugging_face(name, on_disk=False)


# ------------------------------------------------------------------------------------------------ recognising columns

COLUMNS: dict[str, tuple[str, ...]] = {  # what a task needs -> the columns it may be called, the first present is used
    "messages": ("messages", "conversations"),
    "prompt": ("prompt", "question", "instruction", "query", "problem"),
    "demo": ("completion", "response", "output", "solution"),
    "chosen": ("chosen",),
    "rejected": ("rejected",),
    "label": ("label",),
    "answer": ("answer", "ground_truth", "target"),
}
_ROLES = {"human": "user", "gpt": "assistant", "Human": "user", "Assistant": "assistant"}
_TRANSCRIPT = re.compile(r"\n\n(Human|Assistant):")
_LABELS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}


def _messages(value: Any, where: str) -> tuple[Message, ...]:
    """Chat messages in one form, from OpenAI's role/content or ShareGPT's from/value."""
    messages = []
    for message in value:
        role, content = (
            (message.get("role", message.get("from")), message.get("content", message.get("value")))
            if isinstance(message, Mapping)
            else (None, None)
        )
        if not isinstance(role, str) or not isinstance(content, str):
            raise ValueError(f"{where}: a message is not {{'role': text, 'content': text}} but {str(message)[:80]}")
        messages.append({"role": _ROLES.get(role, role), "content": content})
    return tuple(messages)


def _prompt(value: Any, where: str) -> tuple[Message, ...] | str:
    prompt = _messages(value, where) if isinstance(value, list | tuple) else value
    if not isinstance(prompt, str | tuple):
        raise ValueError(f"{where}: the prompt is not text but {type(value).__name__}; make it text or chat messages")
    if not prompt or (isinstance(prompt, str) and not prompt.strip()):
        raise ValueError(f"{where}: the prompt is empty; fill it in or remove the row")
    return prompt


def _conversation(value: Any, where: str) -> tuple[Message, ...] | None:
    """A whole conversation: a message list, or a transcript "\\n\\nHuman: ...\\n\\nAssistant: ..."; else None."""
    if isinstance(value, list | tuple):
        return _messages(value, where)
    if isinstance(value, str) and value.lstrip().startswith("Human:"):
        pieces = _TRANSCRIPT.split("\n\n" + value.lstrip())[1:]
        return tuple(
            {"role": _ROLES[who], "content": said.strip()} for who, said in zip(pieces[::2], pieces[1::2], strict=True)
        )
    return None


def _reply(value: Any, where: str) -> str:
    """The text of a reply: itself, or the last message of a conversation."""
    if conversation := _conversation(value, where):
        return conversation[-1]["content"]
    if not isinstance(value, str):
        raise ValueError(f"{where}: a reply is not text but {type(value).__name__}; make it text or chat messages")
    return value


def _fork(chosen: Any, rejected: Any, where: str) -> tuple[tuple[Message, ...], str, str] | None:
    """The prompt that two conversations share and the replies where they part; None if they are not conversations."""
    one, other = _conversation(chosen, where), _conversation(rejected, where)
    if one is None or other is None:
        return None
    shared = 0
    while shared < min(len(one), len(other)) - 1 and one[shared] == other[shared]:
        shared += 1
    if not shared or one[shared]["role"] != "assistant" or other[shared]["role"] != "assistant":
        raise ValueError(f"{where}: 'chosen' and 'rejected' do not share a prompt; add a column 'prompt'")
    return one[:shared], one[shared]["content"], other[shared]["content"]


def _find(row: Row, columns: Mapping[str, str], where: str) -> dict[str, str]:
    """Which column plays which part in this row; an explicit mapping comes before the usual names."""
    for part, column in columns.items():
        if column not in row:
            raise ValueError(
                f"{where}: needs column {column!r} (mapped to {part!r}); found columns {', '.join(map(str, row))}"
            )
    found = {part: column for part, column in columns.items() if row[column] is not None or part == "prompt"}
    for part, names in COLUMNS.items():
        name = next((name for name in names if row.get(name) is not None and name not in columns.values()), None)
        if name and part not in columns and not (part == "messages" and "prompt" in columns):
            found[part] = name
    return found


def _key(prompt: tuple[Message, ...] | str) -> str:
    """The canonical prompt: a lone user message is the same problem as its bare text."""
    if isinstance(prompt, str) or [message["role"] for message in prompt] == ["user"]:
        return (prompt if isinstance(prompt, str) else prompt[0]["content"]).strip()
    return json.dumps([[message["role"], message["content"].strip()] for message in prompt])


def _ask(row: Row, found: dict[str, str], where: str) -> tuple[tuple[Message, ...] | str, Row]:
    """The prompt of a row, and what came out of the same columns with it: a demo, or a preference."""
    if "messages" in found:
        prompt = _prompt(row[found["messages"]], where)
        if isinstance(prompt, tuple) and prompt[-1]["role"] == "assistant":
            return _prompt(prompt[:-1], where), {"demo": prompt[-1]["content"]}
        return prompt, {}
    if "prompt" in found:
        prompt = _prompt(row[found["prompt"]], where)
        extra = row.get("input") if found["prompt"] == "instruction" and isinstance(prompt, str) else None
        return f"{prompt}\n\n{extra}" if extra else prompt, {}
    fork = _fork(row[found["chosen"]], row[found["rejected"]], where) if {"chosen", "rejected"} <= set(found) else None
    if fork is None:
        raise ValueError(
            f"{where}: needs column 'prompt' (or question, instruction, query, problem, messages); "
            f"found columns {', '.join(map(str, row))}; map one with columns={{'prompt': 'my_column'}}"
        )
    return fork[0], {"chosen": fork[1], "rejected": fork[2]}


def to_task(row: Row, columns: Mapping[str, str], where: str) -> Task:
    """One row as a task: the recognised columns under their part's name, every other column under its own."""
    if not isinstance(row, Mapping):
        raise ValueError(f"{where}: is a {type(row).__name__}, not an object with named columns")
    found = _find(row, columns, where)
    prompt, given = _ask(row, found, where)
    asked = "messages" if "messages" in found else "prompt"
    for part in found:
        if part not in ("prompt", "messages"):
            given.setdefault(part, row[found[part]])
    for part in given.keys() & {"demo", "chosen", "rejected"}:
        given[part] = _reply(given[part], where)
    if "label" in given:
        given["label"] = _LABELS.get(str(given["label"]).strip().lower(), given["label"])
    if isinstance(given.get("answer"), str) and re.search(r"####|\\boxed\s*\{", given["answer"]):
        given.setdefault("demo", given["answer"])
        given["answer"] = final_answer(given["answer"])
    used = {column for part, column in found.items() if part not in ("prompt", "messages") or part == asked}
    if found.get(asked) == "instruction":
        used.add("input")
    given |= {c: v for c, v in row.items() if c not in used and c not in given and v is not None}
    kind = "pair" if {"chosen", "rejected"} <= set(given) else "question" if "answer" in given else "demo"
    return Task(kind, prompt, given, _key(prompt))


# ------------------------------------------------------------------------------------------------------- the source


class Dataset:
    """Tasks from rows; read on first use, once.

    name     a .jsonl, .jsonl.gz, .json, .parquet or .csv file, a folder of them, or a hub name (`owner/name:config`)
    columns  {"prompt": "my_column", ...} for columns with unusual names; parts are messages, prompt, demo, chosen,
             rejected, label, answer, and any other name a reward function may want
    heldout  the share of prompts held out, where the data has no test or validation split of its own
    """

    def __init__(self, name: str | Path, *, columns: Mapping[str, str] | None = None, heldout: float = 0.1) -> None:
        if not 0 <= heldout < 1:
            raise ValueError(f"heldout={heldout} is not a share; give a number from 0 up to, not including, 1")
        self.name = str(name)
        self.summary = f"rows of {self.name}"
        self.columns = dict(columns or {})
        self.heldout = heldout

    @cached_property
    def tasks(self) -> dict[str, list[Task]]:
        """Every task by split."""
        parts = {part: rows for part, rows in read_rows(self.name).items() if rows}
        if not parts:
            raise ValueError(f"dataset {self.name!r} is empty; it needs at least one row")
        own = next((part for part in _HELDOUT_NAMES if part in parts), None)
        if own is None or "train" not in parts:
            return self._divide([task for part, rows in parts.items() for task in self._read(part, rows)])
        heldout = self._read(own, parts[own])
        keys = {task.key for task in heldout}
        train = [task for task in self._read("train", parts["train"]) if task.key not in keys]
        if not train:
            raise ValueError(f"dataset {self.name!r}: every training prompt is also in {own!r}; remove one of the two")
        return {"train": train, "heldout": heldout}

    def _read(self, part: str, rows: list[Row]) -> list[Task]:
        within = self.name if part == "train" else f"{self.name} ({part})"
        return [to_task(row, self.columns, f"{within}, row {number}") for number, row in enumerate(rows, 1)]

    def _divide(self, tasks: list[Task]) -> dict[str, list[Task]]:
        """Hold out by the hash of the key, with at least one prompt held out and one left to train on, train first."""
        rank = {task.key: key_of("heldout", task.key) % 2**32 / 2**32 for task in tasks}
        order = sorted(rank, key=lambda key: (rank[key], key))
        held = {key for key in order if rank[key] < self.heldout}
        if self.heldout:
            held = (held | {order[0]}) - {order[-1]}
        return {
            "train": [task for task in tasks if task.key not in held],
            "heldout": [task for task in tasks if task.key in held],
        }

    @cached_property
    def gives(self) -> frozenset[str]:
        """What every row has."""
        return frozenset.intersection(*(frozenset(task.given) for tasks in self.tasks.values() for task in tasks))

    def size(self, split: str) -> int:
        if split not in SPLITS:
            raise ValueError(f"split {split!r} is unknown; the splits are {', '.join(SPLITS)}")
        return len(self.tasks[split])

    def task(self, split: str, index: int) -> Task:
        """The task at an index, counted round and round."""
        size = self.size(split)
        if not size:
            raise ValueError(f"dataset {self.name!r} has no {split} rows; add rows, or change heldout={self.heldout}")
        return self.tasks[split][index % size]

    def verify(self, task: Task, reply: str) -> Verdict:
        """Right if the reply's final answer is the row's."""
        if "answer" not in task.given or "answer" not in self.gives:
            raise NoVerifier(
                f"dataset {self.name!r} does not have an 'answer' in every row to check replies against; "
                "pass a reward function (`--reward file.py:function`) or a dataset with an `answer` column"
            )
        right = str(task.given["answer"])
        said = final_answer(reply, right)
        if same_answer(said, right):
            return Verdict(1.0, True)
        return Verdict(0.0, False, f"the answer is {right[:40]!r}, not {said[:40]!r}")
