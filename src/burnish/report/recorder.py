"""Writes a run into its store from a thread of its own, so that a step never waits for the disk.

The queue is bounded: where the disk cannot keep up, the run waits instead of filling the memory. Everything of a step is
one transaction: a store that a killed run leaves behind holds whole steps.
"""

from __future__ import annotations

import json
import math
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from burnish.loop import Report
from burnish.report.health import Health, Limits
from burnish.report.rows import Kept, Pieces, add_entropies, group_row, kept, tokens_of, trace_row
from burnish.report.schema import FILE, connect, searchable
from burnish.step import Looks

WAITING_STEPS = 8  # steps that may wait to be written
PATIENCE = 60.0  # seconds a flush waits for the disk before it says so

_GROUP = "INSERT INTO groups (id, step, phase, task, kind, prompt, given, pairs, lists) VALUES (?,?,?,?,?,?,?,?,?)"
_TRACE = (
    "INSERT INTO traces (id, group_id, step, place, reward, correct, length, advantage, dropped, text, turns, scores, "
    "turn_scores, tags, note) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)
_TOKENS = "INSERT INTO tokens (trace, ids, logp, names, streams) VALUES (?,?,?,?,?)"
_EVENT = "INSERT INTO events (time, step, kind, level, text) VALUES (?,?,?,?,?)"

Job = Callable[[sqlite3.Connection], object]


class Sink(Protocol):
    """Another place that hears every step's numbers (wandb, tensorboard): called in the writer's thread."""

    name: str

    def log(self, step: int, numbers: dict[str, float]) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class _Step:
    """What is written of one step."""

    step: int
    metrics: dict[str, float | None]
    seconds: dict[str, float]
    memory: float
    groups: list[Kept]
    looks: list[Looks]


class Recorder:
    """The one writer of a run's store."""

    def __init__(
        self, folder: Path, tokenizer: Any, *, traces: int, limits: Limits | None = None, sinks: Sequence[Sink] = ()
    ) -> None:
        self.path = folder / FILE
        self.traces, self.sinks = traces, list(sinks)
        self.error: Exception | None = None
        self._pieces = Pieces(tokenizer)
        self._health = Health(limits or Limits())
        self._queue: queue.Queue[Job | threading.Event | None] = queue.Queue(WAITING_STEPS)
        self._thread = threading.Thread(target=self._work, name="burnish-recorder", daemon=True)
        self._thread.start()

    def step(self, report: Report, extra: dict[str, float]) -> None:
        """Hand a step over: its numbers, its seconds, and the first of its traces."""
        metrics = {name: _finite(value) for name, value in {**report.metrics, **extra}.items() if name != "step"}
        groups, looks = kept(report, self.traces), list(report.looks.values())
        step = _Step(report.clock.step, metrics, dict(report.seconds), report.memory, groups, looks)
        self._put(lambda db: self._write_step(db, step))

    def event(self, kind: str, text: str, *, level: str = "info", step: int | None = None) -> None:
        """Something that happened. Levels: info, warning, error."""
        row = (time.time(), step, kind, level, text)
        self._put(lambda db: db.execute(_EVENT, row))

    def info(self, **values: Any) -> None:
        """Facts about the run, by name; a later one replaces an earlier one."""
        rows = [(name, json.dumps(value, default=str)) for name, value in values.items()]
        self._put(lambda db: db.executemany("INSERT OR REPLACE INTO info VALUES (?, ?)", rows))

    def flush(self) -> None:
        """Wait until everything handed over so far is on the disk; a machine that dies afterwards loses none of it."""
        self._check()
        reached = threading.Event()
        self._queue.put(reached)
        if not reached.wait(PATIENCE) and self.error is None:
            raise ValueError(f"{self.path} took longer than {PATIENCE:g} s to write; check the disk, then use --resume")
        self._check()

    def close(self) -> None:
        """Write what is left and let go of the file. An error that nobody heard of is raised here."""
        self._queue.put(None)
        self._thread.join(PATIENCE)
        self._check()

    def _put(self, job: Job) -> None:
        self._check()
        self._queue.put(job)

    def _check(self) -> None:
        if self.error is not None:
            raise ValueError(
                f"could not write {self.path}: {self.error}; free some disk space and use --resume {self.path.parent}"
            )

    def _work(self) -> None:
        try:
            db = connect(self.path)
            known = dict(db.execute("SELECT token, piece FROM vocabulary"))
            self._pieces.known |= known
        except (sqlite3.Error, OSError, ValueError) as error:
            self.error = error
        while (job := self._queue.get()) is not None:
            if self.error is None and not isinstance(job, threading.Event):
                self._do(db, job)
            elif self.error is None:
                self._do(db, _to_the_disk, transaction=False)
            if isinstance(job, threading.Event):
                job.set()
        for sink in self.sinks:
            sink.close()
        if self.error is None:
            db.close()

    def _do(self, db: sqlite3.Connection, job: Job, transaction: bool = True) -> None:
        try:
            if transaction:
                db.execute("BEGIN IMMEDIATE")
            job(db)
            if transaction:
                db.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - whatever it is, the run hears of it at its next step
            self.error = error
            if db.in_transaction:
                db.execute("ROLLBACK")

    def _write_step(self, db: sqlite3.Connection, step: _Step) -> None:
        db.executemany("INSERT INTO metrics VALUES (?,?,?)", [(step.step, name, x) for name, x in step.metrics.items()])
        rooms = [(step.step, room, seconds) for room, seconds in step.seconds.items()]
        db.executemany("INSERT INTO timings VALUES (?,?,?)", rooms)
        db.execute("INSERT INTO memory VALUES (?,?)", (step.step, step.memory))
        add_entropies(step.groups, step.looks)
        self._write_traces(db, step.groups)
        db.execute("INSERT OR REPLACE INTO info VALUES ('updated', ?)", (json.dumps(time.time()),))
        for worry in self._health.news(step.step, step.metrics):
            db.execute(_EVENT, (time.time(), step.step, worry.kind, "warning", worry.text))
        numbers = {name: value for name, value in step.metrics.items() if value is not None}
        numbers |= {f"seconds/{room}": seconds for room, seconds in step.seconds.items()}
        numbers |= {"memory_mb": step.memory} if step.memory else {}
        for sink in list(self.sinks):
            self._tell(db, sink, step.step, numbers)

    def _write_traces(self, db: sqlite3.Connection, groups: list[Kept]) -> None:
        group_id = db.execute("SELECT ifnull(max(id), 0) FROM groups").fetchone()[0]
        trace_id = db.execute("SELECT ifnull(max(id), 0) FROM traces").fetchone()[0]
        group_rows, trace_rows, token_rows, texts = [], [], [], []
        tokens = iter(tokens_of([trace for group in groups for trace, _ in group.traces]))
        for group in groups:
            group_id += 1
            row = group_row(group)
            group_rows.append((group_id, *row))
            for place, (trace, dropped) in enumerate(group.traces):
                trace_id += 1
                mine = next(tokens)
                self._pieces.learn(mine.ids)
                said = trace_row(trace, dropped, mine, self._pieces)
                trace_rows.append((trace_id, group_id, group.step, place, *said))
                token_rows.append((trace_id, *mine.row))
                texts.append((trace_id, row[4], said[5]))
        db.executemany(_GROUP, group_rows)
        db.executemany(_TRACE, trace_rows)
        db.executemany(_TOKENS, token_rows)
        if searchable(db):
            db.executemany("INSERT INTO search (rowid, prompt, text) VALUES (?,?,?)", texts)
        db.executemany("INSERT OR IGNORE INTO vocabulary VALUES (?,?)", self._pieces.new)
        self._pieces.new.clear()

    def _tell(self, db: sqlite3.Connection, sink: Sink, step: int, numbers: dict[str, float]) -> None:
        """A sink that fails is left out from then on, with a warning: a run does not die of its spectators."""
        try:
            sink.log(step, numbers)
        except Exception as error:  # noqa: BLE001 - code of another package, which may raise anything
            self.sinks.remove(sink)
            text = f"{sink.name} failed and hears no more of this run: {type(error).__name__}: {error}"
            db.execute(_EVENT, (time.time(), step, "sink", "warning", text))


def _to_the_disk(db: sqlite3.Connection) -> None:
    """Moves the write-ahead log into the database and syncs both; a reader that is in the way is not waited for."""
    db.execute("PRAGMA wal_checkpoint(PASSIVE)")


def cut(folder: Path, step: int) -> None:
    """Forget what was recorded at `step` and later: a resumed run writes it again, with the same numbers."""
    if not (folder / FILE).is_file():
        return
    db = connect(folder / FILE)
    try:
        db.execute("BEGIN IMMEDIATE")
        gone = "SELECT id FROM traces WHERE step >= ?"
        if searchable(db):
            old = f"SELECT 'delete', id, prompt, text FROM trace_text WHERE id IN ({gone})"
            db.execute(f"INSERT INTO search (search, rowid, prompt, text) {old}", (step,))
        db.execute(f"DELETE FROM tokens WHERE trace IN ({gone})", (step,))
        for table in ("traces", "groups", "metrics", "timings", "memory"):
            db.execute(f"DELETE FROM {table} WHERE step >= ?", (step,))
        db.execute("DELETE FROM events WHERE step >= ? AND level = 'warning'", (step,))
        db.execute("COMMIT")
    finally:
        db.close()


def _finite(value: float) -> float | None:
    return value if isinstance(value, int) or math.isfinite(value) else None
