"""One run, until its budget is used up: it goes in legs, each as long as what was used so far says, and can go on after a stop.

Files beside those of every run: job.json (what it was told), spent.jsonl (what every step used), curve.jsonl (held-out
results along the way), found.json (the result, once there is one).
"""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from burnish.compare.ablation import Change, variant
from burnish.compare.budget import Spent
from burnish.compare.job import Found, Job, Mark
from burnish.compare.measure import measured, measured_at_start
from burnish.compare.meter import Meter
from burnish.loop import Report
from burnish.methods.table import Entry, find
from burnish.run import checkpoint
from burnish.run.config import Config, configure
from burnish.run.folder import Folder
from burnish.run.train import Observer, Run, execute, prepare

Tell = Callable[[float, int, float | None], None]  # share of the budget used, steps done, last held-out value


class Stopped(Exception):
    """The run was asked to stop; what it has done is saved."""


def run_job(job: Job, tell: Tell) -> Found:
    """The whole run, from wherever it stands. Raises Stopped when Ctrl-C ended it first."""
    place = Path(job.out)
    ready = place / "found.json"
    if ready.is_file():
        return Found.from_json(json.loads(ready.read_text()))
    if not checkpoint.checkpoints(place):
        shutil.rmtree(place, ignore_errors=True)  # a start that came to nothing
    watch = _Watch(job, tell)
    while not watch.full:
        watch.leg()
        if watch.interrupted:
            raise Stopped
    found = watch.result()
    _write(ready, found.to_json())
    if job.keep_model:
        checkpoint.publish_model(watch.run.cast[watch.run.method.product], place / "model")
    else:
        shutil.rmtree(place / "model", ignore_errors=True)
    shutil.rmtree(place / "checkpoints", ignore_errors=True)
    return found


class _Watch(Observer):
    """Counts a run's cost, evaluates it along the way, and ends it when its budget is used up."""

    run: Run

    def __init__(self, job: Job, tell: Tell) -> None:
        self.job, self.tell, self.place = job, tell, Path(job.out)
        self.meter, self.curve = Meter(), list[Mark]()
        self.legs: list[int] = _read_lines(self.place / "legs.jsonl")
        self.full = self.interrupted = False

    def leg(self) -> None:
        """Go on until the budget is used up, or to the end of the steps that it was thought to last for."""
        going_on = (self.place / "config.yaml").is_file()
        if going_on:
            latest, _ = checkpoint.newest(self.place)
            self._recall(_step_of(latest) if latest else 0)
        if self.legs and self.legs[-1] > self.meter.spent.steps:
            steps = self.legs[-1]  # stopped in the middle of a leg: its schedules go on as they were
        else:
            steps = self.job.budget.steps_ahead(self.meter.spent)
        config = self._config(steps)
        self.run = prepare(entry_of_job(self.job), config, Folder(self.place) if going_on else None)
        if not self.legs or self.legs[-1] != steps:
            _append(self.place / "legs.jsonl", steps)
            self.legs.append(steps)
        (self.place / "config.yaml").write_text(yaml.safe_dump(config.to_dict(), sort_keys=False))
        (self.place / "job.json").write_text(json.dumps(self.job.to_json(), indent=1))
        if self.job.budget.used(self.meter.spent) >= 1 or _trains_nothing(self.run):
            self.full = True
            return
        result = execute(self.run, self)
        self.interrupted = result.stopped and not self.full

    def started(self, run: Run) -> None:
        self.meter.attach(run)
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
        self.tell(min(1.0, used), spent.steps, self.curve[-1].value)
        if used >= 1:
            self.full = True
            if not self.interrupted:
                signal.raise_signal(signal.SIGINT)  # the run's own way to stop: it finishes the step and saves

    def stopping(self) -> None:
        self.interrupted = not self.full

    def result(self) -> Found:
        """The evaluation at the end, with everything that led to it."""
        job, spent = self.job, self.meter.spent
        with self.meter.off():
            end = measured(self.run, job.tasks, job.replies, done=True)
        curve = [*self.curve, Mark(spent.steps, spent.of(job.budget.unit), end.value)]
        return Found(
            job.label, job.method, job.task, job.seed, job.budget, "done", "", job.flags, end.measure, end.value,
            end.replies, end.right, tuple(curve), spent.to_json(), tuple(self.legs), str(self.run.cast[self.run.method.product].device),
        )  # fmt: skip

    def _config(self, steps: int) -> Config:
        job = self.job
        given = {**job.flags, "task": job.task, "seed": job.seed, "out": job.out, "steps": steps}
        return configure(find(job.method), job.method, {**given, "eval_tasks": 0, "eval_every": 0, "keep": 1})

    def _mark(self) -> None:
        """Half of the held-out tasks, one reply each."""
        with self.meter.off():
            ask = measured if self.curve else measured_at_start
            now = ask(self.run, max(1, self.job.tasks // 2), 1)
        spent = self.meter.spent
        mark = Mark(spent.steps, spent.of(self.job.budget.unit), now.value, "".join(map(str, now.right)))
        self.curve.append(mark)
        _append(self.place / "curve.jsonl", asdict(mark))

    def _recall(self, step: int) -> None:
        """What was used and found up to a checkpoint; what came later will come again."""
        spent = [row for row in _read_lines(self.place / "spent.jsonl") if row["steps"] <= step]
        marks = [row for row in _read_lines(self.place / "curve.jsonl") if row["steps"] <= step]
        for name, rows in (("spent.jsonl", spent), ("curve.jsonl", marks)):
            (self.place / name).write_text("".join(json.dumps(row) + "\n" for row in rows))
        self.curve = [Mark(**row) for row in marks]
        self.meter = Meter(Spent(**spent[-1]) if spent else Spent())


def entry_of_job(job: Job) -> Entry:
    """The method of a job, its one part changed where it asks for that."""
    if not job.change:
        return find(job.method)
    parent = job.change["parent"]
    return variant(job.method, parent, Change(**{key: value for key, value in job.change.items() if key != "parent"}))


def _trains_nothing(run: Run) -> bool:
    return not any(phase.learn.terms for phase in run.method.phases)


def _step_of(path: Path) -> int:
    return int(json.loads((path / "step.json").read_text())["step"])


def _append(file: Path, row: Any) -> None:
    with file.open("a") as out:
        out.write(json.dumps(row) + "\n")


def _read_lines(file: Path) -> list[Any]:
    """The whole lines of a file; one that was cut off in the middle of writing is left out."""
    found = []
    for line in file.read_text().splitlines() if file.is_file() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            break
    return found


def _write(file: Path, value: Any) -> None:
    aside = file.with_suffix(".partial")
    aside.write_text(json.dumps(value))
    aside.rename(file)
