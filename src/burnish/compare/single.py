"""Train one run until its budget is spent.

The number of steps is not known in advance. The run is trained in legs: a leg ends at the estimated last step, and if
the budget is not spent then, the next leg resumes with a new estimate. A stopped run can be resumed.

Files in addition to those of every run: job.json (the job), spent.jsonl (the cost after every step), curve.jsonl
(held-out results during training), legs.jsonl (the lengths of the legs), found.json (the result).
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import yaml

from burnish.checkpoint import checkpoint
from burnish.compare.ablation import Change, variant
from burnish.compare.budget import Spent
from burnish.compare.job import Job, Mark, RunResult
from burnish.compare.measure import measured, measured_at_start
from burnish.compare.meter import Meter
from burnish.compare.probes import probed
from burnish.config.options import Config, configure
from burnish.core.loop import Report
from burnish.methods.table import Entry, find
from burnish.run.folder import Folder
from burnish.run.lock import RunLock
from burnish.run.observed import ObservedRun
from burnish.run.train import Observer, Run, execute, prepare
from burnish.store.reader import open_store
from burnish.tasks.resolve import resolve_task

OnProgress = Callable[[float, int, float | None], None]  # share of the budget used, steps done, last held-out value


class Stopped(Exception):
    """Ctrl-C stopped the run; its checkpoint is saved."""


def run_job(job: Job, on_progress: OnProgress) -> RunResult:
    """Train or resume a run to its end. Raises Stopped if Ctrl-C stopped it first."""
    folder = Path(job.out)
    file = folder / "found.json"
    if file.is_file():
        return RunResult.from_json(json.loads(file.read_text()))
    if folder.is_dir() and not checkpoint.checkpoints(folder):
        with RunLock.take(folder):
            shutil.rmtree(folder, ignore_errors=True)  # the run stopped before its first checkpoint
    observer = _BudgetObserver(job, on_progress)
    while not observer.full:
        observer.leg()
        if observer.interrupted:
            raise Stopped
    result = observer.result()
    with RunLock.take(folder):
        _write(file, result.to_json())
        if job.keep_model:
            checkpoint.publish_model(observer.run.models[observer.run.method.product], folder / "model")
        else:
            shutil.rmtree(folder / "model", ignore_errors=True)
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    return result


class _BudgetObserver(Observer):
    """Count a run's cost, evaluate it during training, and end it when its budget is spent."""

    run: Run

    def __init__(self, job: Job, on_progress: OnProgress) -> None:
        self.job, self.on_progress, self.place = job, on_progress, Path(job.out)
        self.meter, self.curve = Meter(), list[Mark]()
        self.legs: list[int] = _read_lines(self.place / "legs.jsonl")
        self.full = self.interrupted = False

    def leg(self) -> None:
        """Train until the budget is spent, or until the estimated last step."""
        resumed = (self.place / "config.yaml").is_file()
        folder = Folder(self.place) if resumed else None
        if folder is not None:
            folder.lock()
            latest, _ = checkpoint.newest(self.place)
            self._recall(_step_of(latest) if latest else 0)
        if self.legs and self.legs[-1] > self.meter.spent.steps:
            steps = self.legs[-1]  # stopped in the middle of a leg: keep its length, and so its schedules
        else:
            steps = self.job.budget.steps_ahead(self.meter.spent)
        config = self._config(steps)
        try:
            self.run = prepare(entry_of_job(self.job), config, folder)
        except BaseException:
            if folder is not None:
                folder.release()
            raise
        if not self.legs or self.legs[-1] != steps:
            _append(self.place / "legs.jsonl", steps)
            self.legs.append(steps)
        (self.place / "config.yaml").write_text(yaml.safe_dump(config.to_dict(), sort_keys=False))
        (self.place / "job.json").write_text(json.dumps(self.job.to_json(), indent=1))
        if self.job.budget.used(self.meter.spent) >= 1 or _trains_nothing(self.run):
            self.full = True
            self.run.folder.release()
            return
        result = execute(self.run, self)
        self.interrupted = result.stopped and not self.full

    def started(self, run: ObservedRun) -> None:
        self.meter.attach(self.run)
        if not self.curve:
            self._mark()

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        self.meter.add(steps=1, seconds=report.seconds["step"])
        spent, budget = self.meter.spent, self.job.budget
        _append(self.place / "spent.jsonl", spent.to_json())
        used = budget.used(spent)
        next_mark = (sum(mark.steps > 0 for mark in self.curve) + 1) / self.job.points
        if next_mark <= used < 1:
            self._mark()
        self.on_progress(min(1.0, used), spent.steps, self.curve[-1].value)
        if used >= 1:
            self.full = True
            if not self.interrupted:
                signal.raise_signal(signal.SIGINT)  # the run handles it: it finishes the step and saves

    def stopping(self) -> None:
        self.interrupted = not self.full

    def result(self) -> RunResult:
        """Evaluate the trained model, and return the result of the run."""
        job, spent = self.job, self.meter.spent
        with self.meter.off():
            end = measured(self._judged(), job.tasks, job.replies, by=job.measure, done=True)
            more = probed(self._judged(), job.probes, job.tasks)
        curve = [*self.curve, Mark(spent.steps, spent.of(job.budget.unit), end.value)]
        return RunResult(
            label=job.label,
            method=job.method,
            task=job.task,
            seed=job.seed,
            budget=job.budget,
            status="done",
            flags=job.flags,
            measure=end.measure,
            value=end.value,
            replies=end.replies,
            right=end.right,
            scores=end.scores,
            curve=tuple(curve),
            spent=spent.to_json(),
            legs=tuple(self.legs),
            device=str(self.run.models[self.run.method.product].device),
            recorded=_recorded(self.place, job.record),
            probed=more,
        )

    def _judged(self) -> Run:
        """The run with the task that judges its replies, where it learns from other data.

        A reward model gives no replies: the held-out rows of its data judge it.
        """
        if not self.job.learns or not self.run.method.generates:
            return self.run
        return replace(self.run, source=resolve_task(self.job.task))

    def _config(self, steps: int) -> Config:
        job = self.job
        given = {**job.flags, "task": job.learns or job.task, "seed": job.seed, "out": job.out, "steps": steps}
        return configure(find(job.method), job.method, {**given, "eval_tasks": 0, "eval_every": 0, "keep": 1})

    def _mark(self) -> None:
        """Evaluate on half of the held-out tasks, one reply each, and append the point to the curve."""
        with self.meter.off():
            measure = measured if self.curve else measured_at_start
            now = measure(self._judged(), max(1, self.job.tasks // 2), 1, by=self.job.measure)
        spent = self.meter.spent
        mark = Mark(spent.steps, spent.of(self.job.budget.unit), now.value, "".join(map(str, now.right)))
        self.curve.append(mark)
        _append(self.place / "curve.jsonl", asdict(mark))

    def _recall(self, step: int) -> None:
        """Restore cost and curve up to a checkpoint; later rows are deleted, because their steps are repeated."""
        spent = [row for row in _read_lines(self.place / "spent.jsonl") if row["steps"] <= step]
        marks = [row for row in _read_lines(self.place / "curve.jsonl") if row["steps"] <= step]
        for name, rows in (("spent.jsonl", spent), ("curve.jsonl", marks)):
            (self.place / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.curve = [Mark(**row) for row in marks]
        self.meter = Meter(Spent(**spent[-1]) if spent else Spent())


def entry_of_job(job: Job) -> Entry:
    """The method of a job, with its change applied (see compare/ablation.py)."""
    if not job.change:
        return find(job.method)
    parent = job.change["parent"]
    return variant(job.method, parent, Change(**{key: value for key, value in job.change.items() if key != "parent"}))


def _recorded(folder: Path, names: Sequence[str]) -> dict[str, tuple[float | None, ...]]:
    """The values of these metrics at every step, to four digits."""
    if not names:
        return {}
    with open_store(folder) as store:
        rows = store.metrics()
    return {name: tuple(_short(row.get(name)) for row in rows) for name in names if any(name in row for row in rows)}


def _short(value: object) -> float | None:
    return float(f"{value:.4g}") if isinstance(value, int | float) else None


def _trains_nothing(run: Run) -> bool:
    return not any(phase.learn.trainees for phase in run.method.phases)


def _step_of(path: Path) -> int:
    return int(json.loads((path / "step.json").read_text())["step"])


def _append(file: Path, row: object) -> None:
    with file.open("a") as out:
        out.write(json.dumps(row) + "\n")


def _read_lines(file: Path) -> list[Any]:
    """The rows of a JSON lines file, up to the first incomplete line."""
    rows = []
    for line in file.read_text().splitlines() if file.is_file() else []:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def _write(file: Path, value: object) -> None:
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(value))
    partial.rename(file)
