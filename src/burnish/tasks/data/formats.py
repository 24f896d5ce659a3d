"""One row of a dataset as a `Task`, whatever convention it follows (docs/data.md lists them)."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from burnish.core.messages import Message, as_messages, pictures_of, text_of
from burnish.core.task import Task
from burnish.tasks.data.code import code_prompt, code_solution, is_code
from burnish.tasks.data.columns import COLUMNS, find_parts, no_prompt
from burnish.tasks.data.episodes import split_rewards
from burnish.tasks.data.messages import (
    conversation,
    read_messages,
    read_tools,
    reply_of,
    said_messages,
    spelled_list,
    spelled_messages,
)
from burnish.tasks.data.pictures import with_pictures
from burnish.tasks.data.preferences import NoPreference, after_prompt, fork, ranked
from burnish.tasks.data.rows import Row
from burnish.tasks.data.stepwise import spelled_steps
from burnish.verifiers.final_answer import final_answer

_LABELS = {"true": True, "1": True, "1.0": True, "false": False, "0": False, "0.0": False}
_MARKED = re.compile(r"####|\\boxed\s*\{")  # before or around a final answer
SHORT = 100  # characters of a solution without a marked answer that is itself the answer
_LISTS = ("responses", "ranks", "scores", "ranking", "labels")
_SPENT = ("prompt", "messages", "system", "text", "tools", "history", *_LISTS)
_SAID = ("prompt", "demo", "chosen", "rejected")  # text or messages
ASKED = (*COLUMNS["messages"], *COLUMNS["prompt"], *COLUMNS["text"])  # columns that may hold a prompt
EMPTY = "{where}: the prompt is empty; fill it in or remove the row"

Prompt = tuple[Message, ...] | str


def to_task(row: Row, columns: Mapping[str, str], where: str, folder: Path | None = None) -> Task:
    """One row as a task: recognised columns under the name of their part, all others under their own name.

    folder: of the data file, from which the paths of pictures are read
    """
    if isinstance(row, list) and row and isinstance(row[0], Mapping):  # a row that is a bare conversation
        row = {"messages": row}
    if not isinstance(row, Mapping):
        raise ValueError(f"{where}: is not an object with named columns but {type(row).__name__}")
    row = spelled_steps(row, where)
    parts = find_parts(row, columns, where)
    row = with_pictures(_unspelled(row, parts), parts, where, folder)
    prompt, given, spent = _asked(row, parts, where)
    for part in parts:
        if part not in _SPENT:
            given.setdefault(part, row[parts[part]])
    spent |= {column for part, column in parts.items() if part not in _SPENT}
    if "tools" in parts and row[parts["tools"]]:
        given["tools"] = read_tools(row[parts["tools"]], where)
        spent.add(parts["tools"])
    if "demo" in given:
        given |= _demonstration(given["demo"], prompt, where)
    if {"chosen", "rejected"} <= given.keys():
        prompt, given["chosen"], given["rejected"] = after_prompt(prompt, given["chosen"], given["rejected"], where)
        if given["chosen"] == given["rejected"]:
            raise NoPreference(f"{where}: 'chosen' and 'rejected' are the same")
    for part in given.keys() & {"chosen", "rejected"}:
        given[part] = reply_of(given[part], where)
    _rank(row, parts, given, spent, where)
    if "label" in given:
        given["label"] = _LABELS.get(str(given["label"]).strip().lower(), given["label"])
    told = row.get("reward_model")  # where verl's rows have the answer
    if given.get("answer") is None and isinstance(told, Mapping) and told.get("ground_truth") is not None:
        given["answer"] = told["ground_truth"]
    _answer(given, parts)
    given |= {c: v for c, v in row.items() if c not in spent and c not in given and v is not None}
    programs = is_code(given)
    if programs and "demo" not in given and (solution := code_solution(row, prompt if isinstance(prompt, str) else "")):
        given["demo"] = solution
    if not programs and "demo" not in given and (said := _answer_as_reply(given, parts, columns)):
        given["demo"] = said
    if "history" in spent and "demo" in given and "messages" not in given:
        given["messages"] = [*prompt, {"role": "assistant", "content": given["demo"]}]
    answered = programs or "answer" in given
    kind = "pair" if {"chosen", "rejected"} <= set(given) else "question" if answered else "demo"
    return Task(kind, prompt, given, key_of_prompt(prompt) if prompt else _digest(str(given["text"])))


def _unspelled(row: Row, parts: dict[str, str]) -> Row:
    """The row with messages and lists that its cells spell as text (CSV), and with one message as a list of one."""
    changed = {parts[name]: said_messages(row[parts[name]]) for name in _SAID if name in parts}
    changed |= {parts[name]: spelled_list(row[parts[name]]) for name in _LISTS if name in parts}
    changed = {column: value for column, value in changed.items() if value is not row[column]}
    return {**row, **changed} if changed else row


def _asked(row: Row, parts: dict[str, str], where: str) -> tuple[Prompt, Row, set[str]]:
    """The prompt of a row, what the same columns give besides, and these columns."""
    if "messages" in parts:
        whole = _with_system(_prompt(spelled_messages(row[parts["messages"]], where), where), row, parts)
        spent = {parts["messages"], *([parts["system"]] if "system" in parts else [])}
        if isinstance(whole, str):
            return whole, {}, spent
        whole, episode = split_rewards(whole, row, where)
        prompt, given = _split_conversation(whole, where)
        return prompt, given if episode is None else {**given, "episode": episode}, spent
    if "prompt" in parts:
        prompt = _prompt(row[parts["prompt"]], where)
        spent = {parts["prompt"]}
        if parts["prompt"] == "instruction" and isinstance(prompt, str):
            spent.add("input")
            prompt = f"{prompt}\n\n{row['input']}" if row.get("input") else prompt
        if "system" in parts and isinstance(row[parts["system"]], str):
            prompt = _with_system(prompt, row, parts)
            spent.add(parts["system"])
        if before := _history(row, parts):
            prompt = as_messages(prompt)
            asked = len(prompt) - 1  # a system message stands before the history
            return (*prompt[:asked], *before, *prompt[asked:]), {}, {*spent, "history", parts["history"]}
        return (code_prompt(prompt, row) if isinstance(prompt, str) else prompt), {}, spent
    if {"chosen", "rejected"} <= set(parts):
        shared, chosen, rejected = fork(row[parts["chosen"]], row[parts["rejected"]], where)
        return shared, {"chosen": chosen, "rejected": rejected}, set()
    text = row[parts["text"]] if "text" in parts else None
    if not isinstance(text, str):
        empty = text is None and any(row.get(name, "") is None for name in ASKED)
        raise ValueError(EMPTY.format(where=where) if empty else no_prompt(row, where))
    if not text.strip():
        raise ValueError(f"{where}: the text is empty; fill it in or remove the row")
    if "test_list" in row:
        return code_prompt(text, row), {}, {parts["text"]}
    return "", {"demo": text, "text": text}, {parts["text"]}


def _history(row: Row, parts: dict[str, str]) -> tuple[Message, ...]:
    """Earlier turns of a row (LLaMA-Factory): [[question, reply], ...]; nothing where the column is something else."""
    pairs = spelled_list(row[parts["history"]]) if "history" in parts else ()
    if not isinstance(pairs, list) or not all(
        isinstance(pair, list | tuple) and len(pair) == 2 and all(isinstance(said, str) for said in pair)
        for pair in pairs
    ):
        return ()
    roles = ("user", "assistant")
    return tuple({"role": role, "content": said} for pair in pairs for role, said in zip(roles, pair, strict=True))


def _prompt(value: object, where: str) -> Prompt:
    prompt = read_messages(value, where) if isinstance(value, list | tuple) else value
    if prompt is not None and not isinstance(prompt, str | tuple):
        raise ValueError(f"{where}: the prompt is not text but {type(value).__name__}; make it text or chat messages")
    if not prompt or (isinstance(prompt, str) and not prompt.strip()):
        raise ValueError(EMPTY.format(where=where))
    return prompt


def _with_system(prompt: Prompt, row: Row, parts: dict[str, str]) -> Prompt:
    """The prompt after the system message of the row, if it has one in a column of its own."""
    said = row[parts["system"]] if "system" in parts else None
    if not isinstance(said, str) or not said.strip():
        return prompt
    messages = ({"role": "user", "content": prompt},) if isinstance(prompt, str) else prompt
    return messages if messages[0]["role"] == "system" else ({"role": "system", "content": said}, *messages)


def _split_conversation(messages: tuple[Message, ...], where: str) -> tuple[Prompt, Row]:
    """A conversation up to its last reply, which is the demonstration; the whole of it, where more is in it."""
    if messages[-1]["role"] != "assistant":
        return messages, ({"messages": list(messages)} if _trains(messages) else {})
    if len(messages) == 1:
        raise ValueError(EMPTY.format(where=where))
    given: Row = {"demo": text_of(messages[-1])}
    if _trains(messages[:-1]) or not _plain(messages[-1]):
        given["messages"] = list(messages)
    return _unweighted(messages[:-1]), given


def _trains(messages: tuple[Message, ...]) -> bool:
    """Whether something in these messages may be trained on."""
    return any(m["role"] == "assistant" or not _plain(m) for m in messages)


def _plain(message: Message) -> bool:
    return message.keys() <= {"role", "content"}


def _unweighted(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    return tuple({key: value for key, value in m.items() if key not in ("train", "weight")} for m in messages)


def _demonstration(value: object, prompt: Prompt, where: str) -> Row:
    """The reply of a row; several messages (tool calls, say) make a conversation whose prompt is not trained."""
    said = conversation(value, where)
    if said is None or (len(said) == 1 and _plain(said[0])):
        return {"demo": reply_of(value, where)}
    before = ({"role": "user", "content": prompt},) if isinstance(prompt, str) else prompt
    shared = len(before) if said[: len(before)] == before else 0  # the completion may repeat the prompt
    asked = ({**m, "train": False} if m["role"] == "assistant" else m for m in before)
    whole = [*asked, *said[shared:]]
    return {"demo": reply_of(value, where), "messages": whole}


def _rank(row: Row, parts: dict[str, str], given: Row, spent: set[str], where: str) -> None:
    """Several replies to one prompt: ranked ones, best first, or the steps of one, each with its label."""
    if "responses" not in parts:
        return
    found = ranked({part: row[column] for part, column in parts.items()}, where)
    if found:
        spent |= {parts[part] for part in ("responses", "ranks", "scores", "ranking", "labels") if part in parts}
        given |= {name: value for name, value in found.items() if name not in given}


def _answer(given: Row, parts: dict[str, str]) -> None:
    """The reference answer: of a worked answer the marked result, of a solution its marked result or a short whole."""
    answer = given.get("answer")
    if isinstance(answer, str) and _MARKED.search(answer):
        given.setdefault("demo", answer)
        given["answer"] = final_answer(answer)
    elif answer is None and parts.get("demo") == "solution" and isinstance(given.get("demo"), str):
        solution = given["demo"]
        if _MARKED.search(solution):
            given["answer"] = final_answer(solution)
        elif len(solution) <= SHORT and "\n" not in solution.strip():
            given["answer"] = solution


def _answer_as_reply(given: Row, parts: dict[str, str], columns: Mapping[str, str]) -> str | None:
    """The answer of a row without another reply: what a method that learns from replies trains on. Not a ground truth,
    which is there to compare with.
    """
    named = "answer" in columns or parts.get("answer", "").lower() in ("answer", "target")
    answer = given.get("answer")
    return str(answer) if named and isinstance(answer, str | int | float) and str(answer).strip() else None


def to_last_reply(task: Task) -> Task | None:
    """A task of a conversation that ends with a turn of the user, up to its last reply; None where it has none.

    Any other task is itself.
    """
    if "demo" in task.given or isinstance(task.prompt, str):
        return task
    said = tuple(task.given.get("messages") or task.prompt)
    last = max((i for i, message in enumerate(said) if message["role"] == "assistant"), default=0)
    if not last:
        return None
    prompt, given = _split_conversation(said[: last + 1], "")
    rest = {key: value for key, value in task.given.items() if key != "messages"}
    return replace(task, prompt=prompt, given={**rest, **given})


def key_of_prompt(prompt: Prompt) -> str:
    """The canonical prompt: a lone user message is the same problem as its bare text."""
    if isinstance(prompt, str):
        return prompt.strip()
    seen = [pictures_of([message]) for message in prompt]
    if [message["role"] for message in prompt] == ["user"] and not seen[0]:
        return text_of(prompt[0]).strip()
    return json.dumps(
        [
            [m["role"], text_of(m).strip(), *([m["tool_calls"]] if "tool_calls" in m else []), *pictures]
            for m, pictures in zip(prompt, seen, strict=True)
        ]
    )


def _digest(text: str) -> str:
    """The key of a text without a prompt: itself, or its beginning and its hash where it is long."""
    if len(text) <= 200:
        return text.strip()
    return f"{text[:100].strip()} {hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}"
