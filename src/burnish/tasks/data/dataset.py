"""`Dataset`: a source of tasks over the rows of files, a hub dataset, or Python objects.

Rows are recognised by their columns and become tasks; tasks are split by the hash of their prompt, so a prompt is never
in both splits; a reply is verified by its final answer. Rows stay where they are and are read when they are drawn.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from burnish.core.splits import SPLITS
from burnish.core.task import NoVerifier, Task, Verdict
from burnish.sandbox.code.limits import SECONDS
from burnish.tasks.code_options import check_code_options
from burnish.tasks.data import cache
from burnish.tasks.data.arrow import DatasetRows
from burnish.tasks.data.cache import State, fingerprint, state
from burnish.tasks.data.code import CANARY, is_canary, problem_of
from burnish.tasks.data.columns import read_mapping
from burnish.tasks.data.files import read_rows
from burnish.tasks.data.formats import to_last_reply, to_task
from burnish.tasks.data.layout import HELDOUT_NAMES
from burnish.tasks.data.lines import spooled
from burnish.tasks.data.rows import ListRows, Rows, joined
from burnish.tasks.data.scan import CUT, WITHOUT_REPLY, Scan, common, scan
from burnish.util.files import files_below
from burnish.util.paths import expanded
from burnish.verifiers.code.tests import names_tests
from burnish.verifiers.code.verifier import CodeVerifier
from burnish.verifiers.final_answer import judge_answer


@dataclass(frozen=True)
class FilePart:
    """The rows of one split: a table, the numbers of its rows, and the hash of each row's key."""

    rows: Rows
    numbers: np.ndarray
    hashes: np.ndarray

    def where(self, kept: np.ndarray) -> FilePart:
        """Only the rows for which `kept` [numbers] is true."""
        return replace(self, numbers=self.numbers[kept], hashes=self.hashes[kept])


class Dataset:
    """Tasks from rows.

    rows     a file (.jsonl, .json, .parquet, .csv, .tsv, .txt, also compressed), a folder of them, a hub dataset
             (owner/name@revision:config), or rows in Python: a list of dicts, a `datasets.Dataset`, any iterable;
             by split where it is a mapping of them
    columns  {"prompt": "my_column", ...} or "prompt=my_column" for columns with unusual names; parts are messages,
             prompt, demo, chosen, rejected, label, answer, text, and any other name a reward function may want
    heldout  the share of prompts to hold out, if the data has no test or validation split; or the name of a split
    split    the split to train on; by default train
    canary   the share of training prompts of programming problems whose tests are made to contradict each other
    unsafe_code  run programs even where the machine cannot isolate them
    name     of rows in Python, for messages
    """

    def __init__(
        self,
        rows: str | Path | Iterable[Any],
        *,
        columns: str | Mapping[str, str] | None = None,
        heldout: float | str = 0.1,
        split: str | None = None,
        name: str | None = None,
        canary: float = 0.0,
        unsafe_code: bool = False,
    ) -> None:
        check_code_options(canary, unsafe_code)
        if not isinstance(heldout, str) and not 0 <= heldout < 1:
            raise ValueError(f"heldout={heldout} is not a share; give a number from 0 up to, not including, 1")
        if isinstance(rows, str | Path):
            self.name, self._tables = str(rows), None
            self.summary = f"rows of {self.name}"
        else:
            self.name, self.summary = name or "rows", "rows given in Python"
            self._tables = _tables(rows, self.name)
        self.columns, self.heldout, self.split = read_mapping(columns), heldout, split
        self.canary, self.unsafe_code = canary, unsafe_code
        self._opened: list[State] | None = None  # the states of the files when they were opened
        self._scans: dict[int, Scan] = {}
        self._demonstrates = False
        self._separate: dict[str, FilePart] = {}
        self._fitted: dict[str, FilePart] = {}
        self._cut: dict[str, tuple[Callable[[Task], Task | None], frozenset[int]]] = {}

    # ------------------------------------------------------------------------------------------------- the rows

    @cached_property
    def tables(self) -> dict[str, Rows]:
        """Every table with rows, by the name of its split in the data."""
        if self._tables is None:
            with contextlib.suppress(OSError, ValueError):  # of which `read_rows` says what is wrong
                self._opened = self._states()
        found = read_rows(self.name) if self._tables is None else self._tables
        tables = {name: rows for name, rows in found.items() if len(rows)}
        if not tables:
            raise ValueError(f"dataset {self.name!r} is empty; it needs at least one row")
        return tables

    @cached_property
    def _parts(self) -> dict[str, FilePart]:
        train, heldout = self._chosen()
        part = self._part(train)
        if heldout is None:
            return self._divide(part)
        held = self._part(self.tables[heldout])
        part = part.where(~np.isin(part.hashes, held.hashes))
        if not len(part.numbers):
            raise ValueError(
                f"dataset {self.name!r}: every training prompt is also in {heldout!r}; remove one of the two"
            )
        return {"train": part, "heldout": held}

    def _chosen(self) -> tuple[Rows, str | None]:
        """The rows to train on, and the name of the split that is held out; None where a share of them is."""
        tables, split = self.tables, self.split
        names = ", ".join(tables)
        if split is None:
            others = [name for name in tables if name not in HELDOUT_NAMES]
            split = "train" if "train" in tables else others[0] if len(others) == 1 else None
            if split is None and others:
                raise ValueError(
                    f"dataset {self.name!r} has the splits {names}; choose one with split={others[0]} after a comma"
                )
        elif split not in tables:
            raise ValueError(f"dataset {self.name!r} has no split {split!r}; it has {names}")
        if isinstance(self.heldout, str):
            if self.heldout not in tables:
                raise ValueError(f"dataset {self.name!r} has no split {self.heldout!r} to hold out; it has {names}")
            return tables[split] if split else joined(list(tables.values())), self.heldout
        if split is None:
            return joined(list(tables.values())), None
        twins = (split.replace("train", name, 1) if "train" in split else name for name in HELDOUT_NAMES)
        own = next((name for name in twins if name in tables and name != split), None)
        return tables[split], own

    def _part(self, rows: Rows) -> FilePart:
        found = self._scan(rows)
        numbers = np.flatnonzero(found.kept & ~(self._demonstrates & (found.ends == WITHOUT_REPLY)))
        if not len(numbers):
            raise ValueError(
                f"dataset {self.name!r} has no usable rows: in all of them the replies are equal or ranked the same"
            )
        return FilePart(rows, numbers, found.hashes[numbers])

    def _scan(self, rows: Rows) -> Scan:
        known = self._scans.get(id(rows))
        if known is None:
            known = self._scans[id(rows)] = scan(rows, self.columns, lambda: self.identity(rows), self.folder)
        return known

    def identity(self, rows: Rows) -> str | None:
        """The content of the files that hold these rows, for names in the cache; None for rows given in Python, without
        a cache, and where the files are no longer those that were opened."""
        if self._tables is not None or not cache.on():
            return None
        files = self._files()
        if not files:  # a hub dataset: its files are named by their content
            return fingerprint(rows.where(0), len(rows))
        try:
            found = fingerprint(*files, rows.where(0), len(rows))
            return found if self._states() == self._opened else None
        except OSError:
            return None

    def _states(self) -> list[State]:
        """The state of each file that holds the rows."""
        return [state(file) for file in self._files()]

    @cached_property
    def folder(self) -> Path | None:
        """Where the data files are; None for a hub dataset and for rows given in Python."""
        if self._tables is not None:
            return None
        path = expanded(self.name)
        return path if path.is_dir() else path.parent if path.is_file() else None

    def _files(self) -> list[Path]:
        """The files that hold the rows; none for a hub dataset and for rows given in Python."""
        path = expanded(self.name)
        if self._tables is not None:
            return []
        return files_below(path) if path.is_dir() else [path] if path.is_file() else []

    def _divide(self, part: FilePart) -> dict[str, FilePart]:
        """Split by the hash of the key, with at least one held-out prompt and one training prompt."""
        assert not isinstance(self.heldout, str)
        ranks = (part.hashes % 2**32) / 2**32
        held = ranks < self.heldout
        if self.heldout:
            first, last = part.hashes[np.lexsort((part.hashes, ranks))[[0, -1]]]
            held = (held | (part.hashes == first)) & (part.hashes != last)
        return {"train": part.where(~held), "heldout": part.where(held)}

    # ------------------------------------------------------------------------------------------------- the source

    @cached_property
    def gives(self) -> frozenset[str]:
        """The keys of Task.given that every row has, and REMARKS of tasks/data/scan.py."""
        return common(scan.demonstrates if self._demonstrates else scan.gives for scan in self._all_scans())

    def cut_to_replies(self) -> None:
        """From now on, cut conversations that end with a turn of the user after their last reply, and leave out those
        without one: for methods that learn from replies. Nothing changes where a row would still lack one.
        """
        scans = self._all_scans()
        if self._demonstrates or not any((one.kept & (one.ends != WITHOUT_REPLY)).any() for one in scans):
            return
        if any("demo" not in one.demonstrates for one in scans):
            return
        self._demonstrates = True
        self._new_parts()

    def all_rows(self) -> None:
        """Undo `cut_to_replies`."""
        if self._demonstrates:
            self._demonstrates = False
            self._new_parts()

    def _new_parts(self) -> None:
        self._separate.clear()
        for name in ("_parts", "gives"):
            self.__dict__.pop(name, None)

    def replies_cut(self) -> tuple[int, int, str]:
        """How many conversations are cut after their last reply, how many have none and are left out, and the place of
        the first of either.
        """
        tables = {id(part.rows): part.rows for part in self._parts.values()}.values() if self._demonstrates else ()
        found = [(rows, self._scan(rows).ends) for rows in tables]
        first = next((rows.where(int(np.flatnonzero(ends)[0])) for rows, ends in found if ends.any()), "")
        cut, gone = (sum(int((ends == which).sum()) for _, ends in found) for which in (CUT, WITHOUT_REPLY))
        return cut, gone, first

    def roles(self) -> frozenset[str]:
        """The roles of conversations that do not end with a reply."""
        return frozenset().union(*(one.roles for one in self._all_scans()))

    def how_many(self, key: str) -> tuple[int, int]:
        """How many rows have a key of Task.given, and how many rows there are."""
        scans = self._all_scans()
        return sum(scan.counts.get(key, 0) for scan in scans), sum(int(scan.kept.sum()) for scan in scans)

    def first(self, wanted: Callable[[Mapping[str, Any]], bool]) -> tuple[str, Task] | None:
        """The first row whose Task.given is wanted: its place, and its task. For messages: it may read all rows."""
        for part in self._parts.values():
            for number in part.numbers.tolist():
                task = to_task(part.rows[number], self.columns, "", self.folder)
                if wanted(task.given):
                    return part.rows.where(number), task
        return None

    def version(self) -> str:
        """What tells these rows from others: how many there are, and ten digits of a hash of their prompts, in order,
        and of the size of their files.
        """
        scans = self._all_scans()
        total = hashlib.sha256()
        for one in scans:
            total.update(one.hashes.tobytes() + one.kept.tobytes())
        total.update(str([file.stat().st_size for file in self._files()]).encode())
        return f"{sum(len(one.hashes) for one in scans):,} rows@{total.hexdigest()[:10]}"

    def left_out(self) -> int:
        """Rows that make no task, because all their replies are equal or ranked the same."""
        return sum(int((~scan.kept).sum()) for scan in self._all_scans())

    def _all_scans(self) -> list[Scan]:
        return [self._scan(rows) for rows in {id(part.rows): part.rows for part in self._parts.values()}.values()]

    def part(self, split: str) -> FilePart:
        if split not in SPLITS:
            raise ValueError(f"split {split!r} is unknown; the splits are {', '.join(SPLITS)}")
        return self._fitted.get(split) or self._separate.get(split) or self._parts[split]

    def size(self, split: str) -> int:
        return len(self.part(split).numbers)

    def task(self, split: str, index: int) -> Task:
        """The task at an index, modulo the size of the split."""
        part = self.part(split)
        if not len(part.numbers):
            raise ValueError(f"dataset {self.name!r} has no {split} rows; add rows, or change heldout={self.heldout}")
        number = int(part.numbers[index % len(part.numbers)])
        task = to_task(part.rows[number], self.columns, part.rows.where(number), self.folder)
        if self._demonstrates:
            task = to_last_reply(task) or task
        cut, long = self._cut.get(split, (None, frozenset()))
        task = (cut(task) or task) if cut is not None and number in long else task
        if split == "train" and is_canary(task, self.canary):
            task = replace(task, given={**task.given, CANARY: True})
        return task

    def where(self, split: str, index: int) -> str:
        """The place of a row, for messages: "data.jsonl, line 7"."""
        part = self.part(split)
        return part.rows.where(int(part.numbers[index]))

    def all_again(self) -> None:
        """Undo `restrict`."""
        self._fitted.clear()
        self._cut.clear()

    def restrict(
        self,
        split: str,
        kept: np.ndarray,
        cut: Callable[[Task], Task | None] | None = None,
        long: np.ndarray | None = None,
    ) -> None:
        """From now on, leave out the rows of a split for which `kept` is false, and pass those in `long`, which is a
        mask of the same rows, through `cut`.
        """
        part = self.part(split)
        if cut is not None and long is not None:
            self._cut[split] = cut, frozenset(part.numbers[long].tolist())
        self._fitted[split] = part.where(kept)

    def without(self, hashes: np.ndarray) -> None:
        """Leave out the training rows with these keys: they are held out elsewhere."""
        part = self._parts["train"]
        self._separate["train"] = part.where(~np.isin(part.hashes, hashes))

    # ------------------------------------------------------------------------------------------------- the verifier

    def scorer(self) -> dict[str, Any]:
        """The spec from which the verifier process rebuilds this verifier."""
        if self._programs:
            return {"kind": "code", "isolated": not self.unsafe_code}
        return {"kind": "answers"}

    @cached_property
    def _programs(self) -> bool:
        """Whether every row is a programming problem with tests."""
        return names_tests(self.gives) and "answer" not in self.gives

    def facts(self, task: Task) -> Any:
        """The right answer, or the tests of a program; raise NoVerifier if not every row has one."""
        if self._programs:
            return problem_of(task, f"dataset {self.name!r}, prompt {task.key[:60]!r}")
        if "answer" not in task.given or "answer" not in self.gives:
            raise NoVerifier(
                f"dataset {self.name!r} does not have an 'answer' in every row to check replies against; "
                "pass a reward function (`--reward file.py:function`) or a dataset with an `answer` column"
            )
        return str(task.given["answer"])

    def verify(self, task: Task, reply: str) -> Verdict:
        """Correct if the reply's final answer equals the row's, or its program passes the row's tests."""
        if self._programs:
            return CodeVerifier().judge(self.scorer(), [self.facts(task)], [reply], SECONDS)[0]
        return judge_answer(self.facts(task), reply)


def _tables(given: Iterable[object], name: str) -> dict[str, Rows]:
    """Rows of Python objects by split; what can be read only once is kept in a temporary file."""
    if isinstance(given, Mapping):
        first = next((values[0] for values in given.values() if isinstance(values, Sequence) and len(values)), None)
        if isinstance(first, Mapping) or not all(isinstance(values, list) for values in given.values()):
            return {str(split): _table(rows, f"{name} ({split})") for split, rows in given.items()}
        columns = list(given)
        return {
            "train": ListRows([dict(zip(columns, r, strict=True)) for r in zip(*given.values(), strict=True)], name)
        }
    return {"train": _table(given, name)}


def _table(given: Iterable[Any], name: str) -> Rows:
    library = sys.modules.get("datasets")  # a program with one of its tables has imported it
    if library is not None and isinstance(given, library.Dataset | library.IterableDataset):
        given = given.with_format(None)  # plain values, whatever format the user's own code reads it in
    if library is not None and isinstance(given, library.Dataset):
        return DatasetRows(given, name)
    if hasattr(given, "to_dict") and hasattr(given, "columns"):  # pandas: iterating gives the names of its columns
        raise ValueError(
            f"{name} are in a {type(given).__name__}; pass datasets.Dataset.from_pandas(frame), or a list of dicts: "
            'frame.to_dict("records")'
        )
    return ListRows(given, name) if isinstance(given, Sequence) else spooled(given, name)
