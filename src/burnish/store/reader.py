"""Read a run's store: configuration, metrics, timings, traces and events. It does not import torch.

store = open_store("runs/first")
store.metrics()[-1]["reward"]
[trace["text"] for trace in store.traces(step=3, least=0.5)]
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.store.environment import alive
from burnish.store.schema import DRAWN, FILE, connect_to_read, searchable
from burnish.util.plainfile import read_json

if TYPE_CHECKING:
    from burnish.report.notebook import Plot, Traces
    from burnish.store.records import (
        Evaluation,
        EventRow,
        FullTrace,
        GroupRow,
        RunFacts,
        RunState,
        TraceOrder,
        TraceRow,
        TraceTokens,
    )

STALE_SECONDS = 600.0  # a run on another machine that wrote nothing for this long counts as failed
PAGE = 50
_JSON = ("given", "pairs", "lists", "turns", "scores", "turn_scores", "tags", "note")
_COLUMNS = (
    "traces.id, traces.group_id, traces.step, phase, task, kind, place, groups.prompt, traces.text, reward, correct, "
    "length, advantage, dropped, turns, scores, turn_scores, tags, note, given"
)


def open_store(folder: str | Path, *, brief: bool = False) -> RunStore:
    """Open the store of the run in this folder for reading, also while the run writes to it.

    brief: the caller closes it at once, so SQLite need not create -wal and -shm files (see `connect_to_read`)
    """
    return RunStore(Path(folder), brief=brief)


class RunStore:
    """The recorded data of one run, read-only."""

    def __init__(self, folder: Path, *, brief: bool = False) -> None:
        self.folder = folder
        self._db = connect_to_read(folder / FILE, brief=brief)
        self._db.row_factory = sqlite3.Row

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> RunStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sql(self, query: str, *values: object) -> list[dict[str, Any]]:
        """Run any SQL query and return its rows as dicts; docs/store.md lists the tables."""
        return [dict(row) for row in self._db.execute(query, values)]

    def info(self, *names: str) -> RunFacts:
        """Facts by name: config, environment, git, state, process, created, updated, steps, limits, kernels.

        names: only these are read
        """
        chosen = f" WHERE name IN ({','.join('?' * len(names))})" if names else ""
        rows = self._db.execute(f"SELECT name, value FROM info{chosen}", names)
        facts: Any = {row["name"]: json.loads(row["value"]) for row in rows}
        info: RunFacts = facts
        return info

    def config(self) -> dict[str, Any]:
        """The method's name and every option with its value, as in config.yaml."""
        return self.info().get("config", {})

    def state(self) -> RunState:
        """running, stopped, finished or failed. A run whose process died without recording a state has failed."""
        return state_of(self.info())

    def evaluation(self) -> dict[str, Evaluation | None]:
        """Held-out results: {"before": ..., "after": ...}, each with name, value (mean, low, high) and samples."""
        file = self.folder / "evaluation.json"
        if not os.path.lexists(file):
            return {}
        results = read_json(file)
        if not isinstance(results, dict):
            raise ValueError(f"{file} does not hold an object with results; restore it from a copy")
        return results

    def metrics(self, after: int = 0, upto: int = 2**62) -> list[dict[str, Any]]:
        """One dict per step, "step" first, of the steps (from 1) after `after` up to `upto`. NaN and Inf are None."""
        query = "SELECT step, name, value FROM metrics WHERE step > ? AND step <= ? ORDER BY rowid"
        return self._by_step(query, after, upto)

    def timings(self, after: int = 0) -> list[dict[str, float]]:
        """Seconds in each stage, one dict per step; "step" is the step's number, "total" its whole time."""
        query = (
            "SELECT step, CASE room WHEN 'step' THEN 'total' ELSE room END, seconds FROM timings "
            "WHERE step > ? ORDER BY rowid"
        )
        return self._by_step(query, after)

    def events(self, after: int = 0) -> list[EventRow]:
        """Events, oldest first: id, time, step, kind, level (info, warning, error), text."""
        rows: Any = self.sql("SELECT * FROM events WHERE id > ? ORDER BY id", after)
        events: list[EventRow] = rows
        return events

    def traces(
        self,
        step: int | None = None,
        *,
        phase: str | None = None,
        task: str | None = None,
        group: int | None = None,
        least: float | None = None,
        most: float | None = None,
        correct: bool | None = None,
        dropped: bool | None = None,
        search: str = "",
        order: TraceOrder = "oldest",
        limit: int | None = PAGE,
        offset: int = 0,
    ) -> Traces:
        """Traces with their texts, scores and the part that dropped them; `tokens(id)` returns tokens and streams.

        step         of this step, counted from 1
        least, most  bounds on the reward
        search       words that occur in the prompt or the reply
        order        oldest, newest, best, or worst (of the traces with a reward)
        limit        largest number of traces; None for all
        """
        search = search.strip()
        where, values = _where(
            {
                "traces.step = ?": step,
                "phase = ?": phase,
                "task = ?": task,
                "traces.group_id = ?": group,
                "reward >= ?": least,
                "reward <= ?": most,
            }
        )
        for clause, wanted in (
            (("correct > 0.5", "correct <= 0.5"), correct),
            (("dropped IS NOT NULL", "dropped IS NULL"), dropped),
        ):
            if wanted is not None:
                where.append(clause[0] if wanted else clause[1])
        if order == "worst":  # NULL sorts first in SQLite, and a trace without a reward is not the worst
            where.append("reward IS NOT NULL")
        tables, by = "traces", ORDERS[order]
        if task is not None:  # the index on task belongs to the table groups, so the join starts there
            tables = "groups CROSS JOIN traces ON traces.group_id = groups.id"
        elif phase is not None or search:
            tables = "traces CROSS JOIN groups ON groups.id = traces.group_id"
        if search and searchable(self._db):  # the full-text index returns matches in the order of rowid
            tables = (
                "search CROSS JOIN traces ON traces.id = search.rowid CROSS JOIN groups ON groups.id = traces.group_id"
            )
            where, values = ["search MATCH ?", *where], [_phrase(search), *values]
            by = by.replace("traces.id", "search.rowid")
        elif search:
            where.append("(traces.text LIKE ? ESCAPE '\\' OR groups.prompt LIKE ? ESCAPE '\\')")
            values += [_pattern(search)] * 2
        chosen = f"WHERE {' AND '.join(where)}" if where else ""
        # the inner query selects ids and the outer one loads texts: sorting ids is much cheaper than sorting texts
        ids = f"SELECT traces.id FROM {tables} {chosen} ORDER BY {by} LIMIT ? OFFSET ?"
        query = (
            f"SELECT {_COLUMNS} FROM traces JOIN groups ON groups.id = traces.group_id "
            f"WHERE traces.id IN ({ids}) ORDER BY {ORDERS[order]}"
        )
        rows = self._db.execute(query, (*values, -1 if limit is None else limit, offset))
        from burnish.report.notebook import Traces

        return Traces(_decoded(row) for row in rows)

    def groups(
        self,
        step: int | None = None,
        *,
        task: str | None = None,
        order: TraceOrder = "oldest",
        limit: int | None = PAGE,
        offset: int = 0,
    ) -> list[GroupRow]:
        """Groups, each with the id, reward, correctness, advantage and dropping part of its traces."""
        where, values = _where({"step = ?": step, "task = ?": task})
        query = (
            f"SELECT id, step, phase, task, prompt FROM groups {'WHERE ' + ' AND '.join(where) if where else ''} "
            f"ORDER BY id {'DESC' if order == 'newest' else ''} LIMIT ? OFFSET ?"
        )
        groups: Any = self.sql(query, *values, -1 if limit is None else limit, offset)
        for group in groups:
            group["traces"] = self.sql(
                "SELECT id, reward, correct, advantage, dropped FROM traces WHERE group_id = ? ORDER BY id", group["id"]
            )
        rows: list[GroupRow] = groups
        return rows

    def trace(self, number: int) -> FullTrace:
        """All columns of one trace, and its tokens as `tokens(id)` returns them."""
        query = f"SELECT {_COLUMNS} FROM traces JOIN groups ON groups.id = traces.group_id WHERE traces.id = ?"
        row = self._db.execute(query, (number,)).fetchone()
        if row is None:
            raise ValueError(f"{self.folder} has no trace {number}")
        trace: FullTrace = {**_decoded(row), "tokens": self.tokens(number)}
        return trace

    def tokens(self, number: int) -> TraceTokens:
        """Tokens of a trace: ids, pieces (their texts), logp (behaviour), and streams by name; NaN is None."""
        row = self._db.execute("SELECT ids, logp, names, streams FROM tokens WHERE trace = ?", (number,)).fetchone()
        if row is None:
            return {"ids": [], "pieces": [], "logp": [], "streams": {}}
        ids, flat, names = _numbers("i", row["ids"]), _numbers("f", row["streams"]), json.loads(row["names"])
        marks = ",".join("?" * len(set(ids)))
        pieces = dict(self._db.execute(f"SELECT token, piece FROM vocabulary WHERE token IN ({marks})", [*set(ids)]))
        streams = {name: flat[i * len(ids) : (i + 1) * len(ids)] for i, name in enumerate(names)}
        texts = [pieces.get(token, "") for token in ids]
        return {"ids": ids, "pieces": texts, "logp": _numbers("f", row["logp"]), "streams": streams}

    def pictures(self, group: int) -> list[bytes]:
        """The pictures of a group's prompt, small, as PNG files."""
        if not self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'pictures'").fetchone():
            return []  # recorded by an earlier version
        query = "SELECT png FROM pictures WHERE group_id = ? AND place < ? ORDER BY place"
        return [bytes(row["png"]) for row in self._db.execute(query, (group, DRAWN))]

    def drawn(self, group: int, place: int) -> bytes | None:
        """What the trace at this place of a group drew, small, as a PNG file; None where it wrote words."""
        if not self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'pictures'").fetchone():
            return None
        query = "SELECT png FROM pictures WHERE group_id = ? AND place = ?"
        row = self._db.execute(query, (group, DRAWN + place)).fetchone()
        return None if row is None else bytes(row["png"])

    def count(self) -> int:
        """Number of recorded traces."""
        traces: int = self._db.execute("SELECT count(*) FROM traces").fetchone()[0]
        return traces

    def plot(self, *names: str) -> Plot:
        """Plot the named metrics in a notebook; by default the learning curves."""
        from burnish.report.notebook import plot

        return plot(self, *names)

    def _repr_html_(self) -> str:
        from burnish.report.notebook import card

        return card(self)

    def _by_step(self, query: str, *values: int) -> list[dict[str, Any]]:
        steps: dict[int, dict[str, Any]] = {}
        for step, name, value in self._db.execute(query, values):
            steps.setdefault(step, {"step": step})[name] = value
        return list(steps.values())


ORDERS: dict[TraceOrder, str] = {
    "oldest": "traces.id",
    "newest": "traces.id DESC",
    "best": "traces.reward DESC, traces.id DESC",
    "worst": "traces.reward, traces.id",
}


def state_of(info: RunFacts) -> RunState:
    """running, stopped, finished or failed, from the info table of a store."""
    state = info.get("state", "failed")
    if state != "running":
        return state
    process = info.get("process")
    running = alive(process) if process else None
    if running is None:
        running = time.time() - info.get("updated", info.get("created", 0.0)) < STALE_SECONDS
    return "running" if running else "failed"


def find_runs(root: str | Path, depth: int = 4) -> Iterator[Path]:
    """Yield the run folders at or below a folder in the order of names, down to `depth` levels.

    A run folder contains store.sqlite of any kind (a file, a directory, a broken link), or config.yaml and
    checkpoints/; it may be unreadable. Folders that cannot be listed and circular links are skipped.
    """
    root = Path(root)
    if is_run(root):
        yield root
        return
    try:
        names = sorted(name for name in os.listdir(root) if not name.startswith(".")) if depth else []
    except OSError:
        return
    for name in names:
        path = root / name
        if os.path.isdir(path):  # unlike Path.is_dir, it never raises
            yield from find_runs(path, depth - 1)


def is_run(folder: Path) -> bool:
    """Whether a folder looks like a run folder of `burnish train`."""
    at = os.fspath(folder)
    return os.path.lexists(os.path.join(at, FILE)) or (
        os.path.lexists(os.path.join(at, "config.yaml")) and os.path.isdir(os.path.join(at, "checkpoints"))
    )


def _phrase(words: str) -> str:
    """An FTS5 query for these words: each is quoted, and the last is a prefix."""
    return " ".join('"' + word.replace('"', '""') + '"' for word in words.split()) + " *"


def _pattern(words: str) -> str:
    return "%" + words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"


def _where(conditions: dict[str, object]) -> tuple[list[str], list[object]]:
    chosen = {clause: value for clause, value in conditions.items() if value is not None}
    return list(chosen), list(chosen.values())


def _decoded(row: sqlite3.Row) -> TraceRow:
    columns: Any = dict(row)
    for name in _JSON:
        if isinstance(columns.get(name), str):
            columns[name] = json.loads(columns[name])
    trace: TraceRow = columns
    return trace


def _numbers(kind: str, data: bytes) -> list[Any]:
    """Decode little-endian 4-byte numbers; NaN becomes None, because JSON has no NaN."""
    import sys

    numbers = array(kind)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return [None if x != x else x for x in numbers] if kind == "f" else numbers.tolist()
