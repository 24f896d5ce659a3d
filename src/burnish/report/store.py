"""Reading a run's store: `open_store(folder)` gives its configuration, metrics, timings, traces and events. No torch needed.

store = open_store("runs/first")
store.metrics()[-1]["reward"]
[trace["text"] for trace in store.traces(step=3, least=0.5)]
"""

from __future__ import annotations

import json
import sqlite3
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from burnish.report.environment import alive
from burnish.report.schema import FILE, connect_to_read, searchable

if TYPE_CHECKING:
    from burnish.report.notebook import Plot, Traces

STALE_SECONDS = 600.0  # a run on another machine that wrote nothing for so long is taken for dead
PAGE = 50
_JSON = ("given", "pairs", "lists", "turns", "scores", "turn_scores", "tags", "note")
_COLUMNS = (
    "traces.id, traces.group_id, traces.step, phase, task, kind, place, groups.prompt, traces.text, reward, correct, length, advantage, "
    "dropped, turns, scores, turn_scores, tags, note, given"
)


def open_store(folder: str | Path) -> Store:
    """The store of the run in this folder, for reading; a run that is being trained may be read at any time."""
    return Store(Path(folder))


class Store:
    """One run, as it was recorded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._db = connect_to_read(folder / FILE)
        self._db.row_factory = sqlite3.Row

    def close(self) -> None:
        self._db.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sql(self, query: str, *values: Any) -> list[dict[str, Any]]:
        """Any query; docs/store.md lists the tables."""
        return [dict(row) for row in self._db.execute(query, values)]

    def info(self) -> dict[str, Any]:
        """Facts by name: config, environment, git, state, process, created, updated, steps, limits."""
        return {row["name"]: json.loads(row["value"]) for row in self._db.execute("SELECT name, value FROM info")}

    def config(self) -> dict[str, Any]:
        """The method's name and every option with its value, as in config.yaml."""
        return self.info().get("config", {})

    def state(self) -> str:
        """running, stopped, finished or failed. A process that is gone without a word has failed."""
        return state_of(self.info())

    def evaluation(self) -> dict[str, Any]:
        """Held-out results: {"before": ..., "after": ...}, each with name, value (mean, low, high) and shown answers."""
        file = self.folder / "evaluation.json"
        return json.loads(file.read_text()) if file.is_file() else {}

    def metrics(self, after: int = -1, upto: int = 2**62) -> list[dict[str, Any]]:
        """One dict a step, "step" first; only steps later than `after`, up to `upto`. What was not a finite number is None."""
        query = "SELECT step, name, value FROM metrics WHERE step > ? AND step <= ? ORDER BY rowid"
        return self._by_step(query, after, upto)

    def timings(self, after: int = -1) -> list[dict[str, Any]]:
        """Seconds in each room, one dict a step; "step" is the step's number, "total" all of its time."""
        query = "SELECT step, CASE room WHEN 'step' THEN 'total' ELSE room END, seconds FROM timings WHERE step > ? ORDER BY rowid"
        return self._by_step(query, after)

    def events(self, after: int = 0) -> list[dict[str, Any]]:
        """What happened, oldest first: id, time, step, kind, level (info, warning, error), text."""
        return self.sql("SELECT * FROM events WHERE id > ? ORDER BY id", after)

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
        order: str = "oldest",
        limit: int | None = PAGE,
        offset: int = 0,
    ) -> Traces:
        """Traces with their scores, texts and what became of them; tokens and streams come from `tokens(id)`.

        least, most  bounds on the reward
        search       words that the prompt or the reply holds
        order        oldest, newest, best, or worst (of those that have a reward)
        limit        how many at most; None for all
        """
        where, values = _where(
            {"traces.step = ?": step, "phase = ?": phase, "task = ?": task, "traces.group_id = ?": group, "reward >= ?": least, "reward <= ?": most}
        )  # fmt: skip
        for clause, wanted in (
            (("correct > 0.5", "correct <= 0.5"), correct),
            (("dropped IS NOT NULL", "dropped IS NULL"), dropped),
        ):
            if wanted is not None:
                where.append(clause[0] if wanted else clause[1])
        if order == "worst":  # no reward is not the worst one
            where.append("reward IS NOT NULL")
        tables, by = "traces", ORDERS[order]
        if task is not None:  # the index on tasks is on the side of the groups
            tables = "groups CROSS JOIN traces ON traces.group_id = groups.id"
        elif phase is not None or search:
            tables = "traces CROSS JOIN groups ON groups.id = traces.group_id"
        if search and searchable(self._db):  # the index of words gives its matches in the order of ids
            tables = (
                "search CROSS JOIN traces ON traces.id = search.rowid CROSS JOIN groups ON groups.id = traces.group_id"
            )
            where, values = ["search MATCH ?", *where], [_phrase(search), *values]
            by = by.replace("traces.id", "search.rowid")
        elif search:
            where.append("(traces.text LIKE ? ESCAPE '\\' OR groups.prompt LIKE ? ESCAPE '\\')")
            values += [_pattern(search)] * 2
        chosen = f"WHERE {' AND '.join(where)}" if where else ""
        # first which, then what is in them: sorting ids is much cheaper than sorting texts
        which = f"SELECT traces.id FROM {tables} {chosen} ORDER BY {by} LIMIT ? OFFSET ?"
        query = f"SELECT {_COLUMNS} FROM traces JOIN groups ON groups.id = traces.group_id WHERE traces.id IN ({which}) ORDER BY {ORDERS[order]}"
        rows = self._db.execute(query, (*values, -1 if limit is None else limit, offset))
        from burnish.report.notebook import Traces

        return Traces(_decoded(row) for row in rows)

    def groups(
        self,
        step: int | None = None,
        *,
        task: str | None = None,
        order: str = "oldest",
        limit: int | None = PAGE,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """Groups with the rewards of their traces, and which of these are right and which were dropped, in their order."""
        where, values = _where({"step = ?": step, "task = ?": task})
        query = (
            f"SELECT id, step, phase, task, prompt FROM groups {'WHERE ' + ' AND '.join(where) if where else ''} "
            f"ORDER BY id {'DESC' if order == 'newest' else ''} LIMIT ? OFFSET ?"
        )
        found = self.sql(query, *values, -1 if limit is None else limit, offset)
        for group in found:
            group["traces"] = self.sql(
                "SELECT id, reward, correct, advantage, dropped FROM traces WHERE group_id = ? ORDER BY id", group["id"]
            )
        return found

    def trace(self, number: int) -> dict[str, Any]:
        """One trace by its id, with everything of it: `tokens` is as `tokens(id)` gives it."""
        query = f"SELECT {_COLUMNS} FROM traces JOIN groups ON groups.id = traces.group_id WHERE traces.id = ?"
        row = self._db.execute(query, (number,)).fetchone()
        if row is None:
            raise ValueError(f"{self.folder} has no trace {number}")
        found = _decoded(row)
        return {**found, "tokens": self.tokens(number)}

    def tokens(self, number: int) -> dict[str, Any]:
        """A trace token by token: ids, pieces (their texts), logp (behaviour), and each stream by its name; None is nan."""
        row = self._db.execute("SELECT ids, logp, names, streams FROM tokens WHERE trace = ?", (number,)).fetchone()
        if row is None:
            return {"ids": [], "pieces": [], "logp": [], "streams": {}}
        ids, flat, names = _numbers("i", row["ids"]), _numbers("f", row["streams"]), json.loads(row["names"])
        marks = ",".join("?" * len(set(ids)))
        pieces = dict(self._db.execute(f"SELECT token, piece FROM vocabulary WHERE token IN ({marks})", [*set(ids)]))
        streams = {name: flat[i * len(ids) : (i + 1) * len(ids)] for i, name in enumerate(names)}
        return {
            "ids": ids, "pieces": [pieces.get(token, "") for token in ids], "logp": _numbers("f", row["logp"]), "streams": streams,
        }  # fmt: skip

    def count(self) -> int:
        """How many traces are recorded."""
        return self._db.execute("SELECT count(*) FROM traces").fetchone()[0]

    def plot(self, *names: str) -> Plot:
        """The named metrics, drawn for a notebook; without a name, those that say how learning goes."""
        from burnish.report.notebook import plot

        return plot(self, *names)

    def _repr_html_(self) -> str:
        from burnish.report.notebook import card

        return card(self)

    def _by_step(self, query: str, *values: int) -> list[dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        for step, name, value in self._db.execute(query, values):
            found.setdefault(step, {"step": step})[name] = value
        return list(found.values())


ORDERS = {
    "oldest": "traces.id",
    "newest": "traces.id DESC",
    "best": "traces.reward DESC, traces.id DESC",
    "worst": "traces.reward, traces.id",
}


def state_of(info: dict[str, Any]) -> str:
    """running, stopped, finished or failed, from a store's facts."""
    state = info.get("state", "failed")
    if state != "running":
        return state
    lives = alive(info.get("process", {})) if info.get("process") else None
    if lives is None:
        lives = time.time() - info.get("updated", info.get("created", 0.0)) < STALE_SECONDS
    return "running" if lives else "failed"


def find_runs(root: str | Path, depth: int = 4) -> Iterator[Path]:
    """Every run folder at or below a folder, by name, at most so deep."""
    root = Path(root)
    if (root / FILE).is_file():
        yield root
        return
    for path in sorted(root.iterdir()) if depth and root.is_dir() else ():
        if path.is_dir() and not path.name.startswith("."):
            yield from find_runs(path, depth - 1)


def _phrase(words: str) -> str:
    """Words as FTS5 wants them: each quoted, the last one perhaps not finished."""
    return " ".join('"' + word.replace('"', '""') + '"' for word in words.split()) + " *"


def _pattern(words: str) -> str:
    return "%" + words.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"


def _where(conditions: dict[str, Any]) -> tuple[list[str], list[Any]]:
    chosen = {clause: value for clause, value in conditions.items() if value is not None}
    return list(chosen), list(chosen.values())


def _decoded(row: sqlite3.Row) -> dict[str, Any]:
    found = dict(row)
    for name in _JSON:
        if isinstance(found.get(name), str):
            found[name] = json.loads(found[name])
    return found


def _numbers(kind: str, data: bytes) -> list[Any]:
    """Little-endian 4-byte numbers; nan becomes None, which JSON can say."""
    import sys

    found = array(kind)
    found.frombytes(data)
    if sys.byteorder == "big":
        found.byteswap()
    return [None if x != x else x for x in found] if kind == "f" else found.tolist()
