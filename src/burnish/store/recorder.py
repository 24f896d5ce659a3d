"""Write a run into its store from a background thread, so that training does not wait for the disk.

The queue is bounded: if the disk is too slow, training waits instead of using more memory. Each step is one
transaction, so the store of a killed run contains only complete steps.
"""

from __future__ import annotations

import json
import math
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from burnish.core.loop import Report
from burnish.core.sample_ledger import SampleFate, UnitRow
from burnish.core.step import TokenEntropies
from burnish.core.tokenizer import Tokenizer
from burnish.store.health import Health, HealthLimits
from burnish.store.records import EventLevel
from burnish.store.rows import (
    Pieces,
    RecordedGroup,
    add_entropies,
    drawn_picture,
    group_row,
    recorded_groups,
    thumbnails,
    tokens_of,
    trace_row,
)
from burnish.store.schema import DRAWN, FILE, connect, searchable

QUEUE_SIZE = 8  # jobs (mostly steps) that may wait to be written
FLUSH_TIMEOUT = 60.0  # seconds that flush and close wait for the disk

_GROUP = "INSERT INTO groups (id, step, phase, task, kind, prompt, given, pairs, lists) VALUES (?,?,?,?,?,?,?,?,?)"
_TRACE = (
    "INSERT INTO traces (id, group_id, step, place, reward, correct, length, advantage, dropped, text, turns, scores, "
    "turn_scores, tags, note) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"
)
_TOKENS = "INSERT INTO tokens (trace, ids, logp, names, streams) VALUES (?,?,?,?,?)"
_EVENT = "INSERT INTO events (time, step, kind, level, text) VALUES (?,?,?,?,?)"

Job = Callable[[sqlite3.Connection], object]


class Sink(Protocol):
    """A logger that receives the metrics of every step (wandb, tensorboard); it is called in the writer thread."""

    name: str

    def log(self, step: int, numbers: dict[str, float]) -> None: ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class _Step:
    """The data of one step, as the writer thread receives it; steps count from 1, as everywhere in a store."""

    step: int
    metrics: dict[str, float | None]
    seconds: dict[str, float]
    memory: float
    groups: list[RecordedGroup]
    looks: list[TokenEntropies]
    units: list[UnitRow]
    ledger: list[SampleFate]


class RunRecorder:
    """The only writer of a run's store."""

    def __init__(
        self,
        folder: Path,
        tokenizer: Tokenizer,
        *,
        traces: int,
        limits: HealthLimits | None = None,
        sinks: Sequence[Sink] = (),
    ) -> None:
        self.path = folder / FILE
        self.traces, self.sinks = traces, list(sinks)
        self.error: Exception | None = None
        self._file: tuple[int, int] | None = None
        self._pieces = Pieces(tokenizer)
        self._health = Health(limits or HealthLimits())
        self._queue: queue.Queue[Job | threading.Event | None] = queue.Queue(QUEUE_SIZE)
        self._thread = threading.Thread(target=self._work, name="burnish-recorder", daemon=True)
        self._thread.start()

    def step(self, report: Report, extra: dict[str, float]) -> None:
        """Record a step: its metrics, its timings, and its first traces."""
        metrics = {name: _finite(value) for name, value in {**report.metrics, **extra}.items() if name != "step"}
        groups, looks = recorded_groups(report, self.traces), list(report.looks.values())
        seconds = dict(report.seconds)
        units = [row._replace(step=row.step + 1, drawn=row.drawn + 1) for row in report.units]
        ledger = [row._replace(step=row.step + 1, drawn=row.drawn + 1) for row in report.ledger]
        step = _Step(report.clock.step + 1, metrics, seconds, report.memory, groups, looks, units, ledger)
        self._put(lambda db: self._write_step(db, step))

    def event(self, kind: str, text: str, *, level: EventLevel = "info", step: int | None = None) -> None:
        """Record an event. Levels: info, warning, error. step: that of the clock, which counts from 0."""
        row = (time.time(), None if step is None else step + 1, kind, level, text)
        self._put(lambda db: db.execute(_EVENT, row))

    def info(self, **values: object) -> None:
        """Record facts about the run by name; a new value replaces the old one."""
        rows = [(name, json.dumps(value, default=str)) for name, value in values.items()]
        self._put(lambda db: db.executemany("INSERT OR REPLACE INTO info VALUES (?, ?)", rows))

    def flush(self) -> None:
        """Wait until everything recorded so far is synced to disk and survives a crash of the machine."""
        self._check()
        synced = threading.Event()
        self._queue.put(synced)
        if not synced.wait(FLUSH_TIMEOUT) and self.error is None:
            seconds = f"{FLUSH_TIMEOUT:g} s"
            raise ValueError(f"{self.path} took longer than {seconds} to write; check the disk, then use --resume")
        self._check()

    def close(self) -> None:
        """Write the rest of the queue and close the file; raises an error of the writer thread, if there was one."""
        self._queue.put(None)
        self._thread.join(FLUSH_TIMEOUT)
        self._check()

    def _put(self, job: Job) -> None:
        self._check()
        self._queue.put(job)

    def _check(self) -> None:
        if self.error is None and self._file is not None and _identity(self.path) != self._file:
            raise ValueError(
                f"{self.path} was deleted or replaced while the run was writing into it: what was recorded is lost, "
                f"so the run stops; put the file back and use --resume {self.path.parent}, or start the run again"
            )
        if self.error is not None:
            disk = isinstance(self.error, sqlite3.OperationalError | OSError)
            fix = "free some disk space" if disk else "correct this"
            raise ValueError(f"could not write {self.path}: {self.error}; {fix} and use --resume {self.path.parent}")

    def _work(self) -> None:
        try:
            db = connect(self.path)
            self._file = _identity(self.path)
            vocabulary = dict(db.execute("SELECT token, piece FROM vocabulary"))
            self._pieces.known |= vocabulary
        except (sqlite3.Error, OSError, ValueError) as error:
            self.error = error
        while (job := self._queue.get()) is not None:
            if self.error is None and not isinstance(job, threading.Event):
                self._do(db, job)
            elif self.error is None:
                self._do(db, _sync, transaction=False)
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
        except Exception as error:  # noqa: BLE001 - any error of this thread is raised in the training thread
            self.error = error
            if db.in_transaction:
                db.execute("ROLLBACK")

    def _write_step(self, db: sqlite3.Connection, step: _Step) -> None:
        db.executemany("INSERT INTO metrics VALUES (?,?,?)", [(step.step, name, x) for name, x in step.metrics.items()])
        timings = [(step.step, stage, seconds) for stage, seconds in step.seconds.items()]
        db.executemany("INSERT INTO timings VALUES (?,?,?)", timings)
        db.execute("INSERT INTO memory VALUES (?,?)", (step.step, step.memory))
        add_entropies(step.groups, step.looks)
        self._write_traces(db, step.groups)
        db.executemany(f"INSERT INTO units VALUES ({','.join('?' * 10)})", step.units)
        db.executemany(f"INSERT INTO ledger VALUES ({','.join('?' * 10)})", step.ledger)
        db.execute("INSERT OR REPLACE INTO info VALUES ('updated', ?)", (json.dumps(time.time()),))
        for worry in self._health.news(step.step, step.metrics):
            db.execute(_EVENT, (time.time(), step.step, worry.kind, "warning", worry.text))
        numbers = {name: value for name, value in step.metrics.items() if value is not None}
        numbers |= {f"seconds/{stage}": seconds for stage, seconds in step.seconds.items()}
        numbers |= {"memory_mb": step.memory} if step.memory else {}
        for sink in list(self.sinks):
            self._log(db, sink, step.step, numbers)

    def _write_traces(self, db: sqlite3.Connection, groups: list[RecordedGroup]) -> None:
        group_id = db.execute("SELECT ifnull(max(id), 0) FROM groups").fetchone()[0]
        trace_id = db.execute("SELECT ifnull(max(id), 0) FROM traces").fetchone()[0]
        group_rows, trace_rows, token_rows, texts = [], [], [], []
        shown: list[tuple[int, int, int, bytes]] = []
        tokens = iter(tokens_of([trace for group in groups for trace, _ in group.traces]))
        for group in groups:
            group_id += 1
            row = group_row(group)
            group_rows.append((group_id, *row))
            shown += [(group_id, group.step, place, png) for place, png in enumerate(thumbnails(group.task))]
            for place, (trace, dropped) in enumerate(group.traces):
                trace_id += 1
                trace_tokens = next(tokens)
                self._pieces.learn(trace_tokens.ids)
                png = drawn_picture(trace)
                shown += [] if png is None else [(group_id, group.step, DRAWN + place, png)]
                columns = trace_row(trace, dropped, trace_tokens, self._pieces)
                trace_rows.append((trace_id, group_id, row[0], place, *columns))
                token_rows.append((trace_id, *trace_tokens.row))
                texts.append((trace_id, row[4], columns[5]))
        db.executemany(_GROUP, group_rows)
        db.executemany(_TRACE, trace_rows)
        db.executemany(_TOKENS, token_rows)
        db.executemany("INSERT OR REPLACE INTO pictures VALUES (?,?,?,?)", shown)
        if searchable(db):
            db.executemany("INSERT INTO search (rowid, prompt, text) VALUES (?,?,?)", texts)
        db.executemany("INSERT OR IGNORE INTO vocabulary VALUES (?,?)", self._pieces.new)
        self._pieces.new.clear()

    def _log(self, db: sqlite3.Connection, sink: Sink, step: int, numbers: dict[str, float]) -> None:
        """Log to one sink; a sink that fails is disabled with a warning, and training continues."""
        try:
            sink.log(step, numbers)
        except Exception as error:  # noqa: BLE001 - code of another package, which may raise anything
            self.sinks.remove(sink)
            text = f"{sink.name} failed and is disabled for the rest of this run: {type(error).__name__}: {error}"
            db.execute(_EVENT, (time.time(), step, "sink", "warning", text))


def _identity(path: Path) -> tuple[int, int]:
    """Device and inode of a file, to detect its deletion: SQLite would keep writing into the deleted file."""
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0
    return status.st_dev, status.st_ino


def _sync(db: sqlite3.Connection) -> None:
    """Copy the write-ahead log into the database and sync both, without waiting for readers."""
    db.execute("PRAGMA wal_checkpoint(PASSIVE)")


def cut(folder: Path, step: int) -> None:
    """Delete what was recorded after `step` steps, because a resumed run records it again."""
    if not os.path.lexists(folder / FILE):
        return
    db = connect(folder / FILE)
    try:
        db.execute("BEGIN IMMEDIATE")
        deleted = "SELECT id FROM traces WHERE step > ?"
        if searchable(db):
            old = f"SELECT 'delete', id, prompt, text FROM trace_text WHERE id IN ({deleted})"
            db.execute(f"INSERT INTO search (search, rowid, prompt, text) {old}", (step,))
        db.execute(f"DELETE FROM tokens WHERE trace IN ({deleted})", (step,))
        for table in ("traces", "groups", "metrics", "timings", "memory", "units", "ledger", "pictures"):
            db.execute(f"DELETE FROM {table} WHERE step > ?", (step,))
        db.execute("DELETE FROM events WHERE step > ? AND level = 'warning'", (step,))
        db.execute("COMMIT")
    finally:
        db.close()


def _finite(value: float) -> float | None:
    return value if isinstance(value, int) or math.isfinite(value) else None
