"""A whole run: build, evaluate, loop, checkpoint, evaluate again, save. What people see of it is the observer's."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from burnish.cast.stage import Cast, build
from burnish.learn.mismatch import ALARM
from burnish.loop import Report, loop
from burnish.method import Method
from burnish.methods.table import Entry, entry_of, find
from burnish.parts import Stateful
from burnish.report.health import Limits
from burnish.report.sinks import open_sinks
from burnish.report.store import Store, open_store
from burnish.run import checkpoint
from burnish.run.config import Config, configure
from burnish.run.folder import Folder
from burnish.run.heldout import Outcome, held_out, held_out_once
from burnish.run.pipeline import Pipeline, SamplesAhead, SamplesElsewhere
from burnish.run.planning import plan
from burnish.run.recording import Recording
from burnish.run.saving import Saver
from burnish.run.watch import Watch
from burnish.step import Settings
from burnish.tasks.resolve import IN_PYTHON
from burnish.tasks.source import Source

if TYPE_CHECKING:
    from burnish.report.notebook import Plot, Traces


class Observer:
    """Hears what a run does. Every method may be left as it is; the command line draws with them."""

    def preparing(self, what: str) -> None:
        """Something that takes a while before the run itself: other processes start."""

    def started(self, run: Run) -> None: ...

    def evaluated(self, when: str, outcome: Outcome) -> None: ...

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None: ...

    def saved(self, path: Path) -> None:
        """A checkpoint is whole and on the disk. Training may have gone on since it was taken."""

    def warned(self, said: str) -> None:
        """Something is not as it should be, and the run goes on: a damaged checkpoint, a refused update, growing memory."""

    def ordered(self, action: str) -> None:
        """Somebody asked from outside: pause, resume, checkpoint or stop."""

    def stopping(self) -> None:
        """Ctrl-C was heard; the step under way is finished first. Called from a signal handler: do little."""

    def finished(self, result: Result) -> None: ...


@dataclass(frozen=True)
class About:
    """What people are told of the model that a run trains: its weights, how many of them move, and where it is."""

    weights: int
    moving: int
    device: str


@dataclass
class Run:
    """Everything a run is made of, before its first step."""

    config: Config
    method: Method
    source: Source
    cast: Cast
    settings: Settings
    folder: Folder
    start: int = 0
    warnings: list[str] = field(default_factory=list)
    pipeline: SamplesAhead | None = None

    @property
    def about(self) -> About:
        """The product's model, in numbers."""
        member = self.cast[self.method.product]
        sizes = [(p.numel(), p.requires_grad) for p in member.model.parameters()]
        return About(sum(n for n, _ in sizes), sum(n for n, moves in sizes if moves), str(member.device))

    def memories(self) -> dict[str, Stateful]:
        """Everything with a memory that a checkpoint holds, by name."""
        return memories(self.method, self.pipeline)


@dataclass(frozen=True)
class Result:
    """How a run ended: held-out outcomes before and after, where things are, and whether it was stopped early."""

    folder: Path
    model: Path | None
    before: Outcome | None
    after: Outcome | None
    metrics: list[dict[str, Any]] = field(repr=False)
    stopped: bool = False

    @property
    def store(self) -> Store:
        """Everything that was recorded: result.store.traces(step=3), result.store.sql("SELECT ...")."""
        return open_store(self.folder)

    def plot(self, *names: str) -> Plot:
        """The run's curves, in a notebook; or those of the named metrics: result.plot("reward", "pg/entropy")."""
        return self.store.plot(*names)

    def traces(self, step: int | None = None, **which: Any) -> Traces:
        """What was said: result.traces(step=3, least=0.5, search="carry"). Options are those of Store.traces."""
        return self.store.traces(step, **which)

    def _repr_html_(self) -> str:
        return self.store._repr_html_()


def train(method: str | Any = "grpo", *, observer: Observer | None = None, **given: Any) -> Result:
    """Train: train("grpo", task="sort", steps=40, n=8). Options are those of `burnish show METHOD`.

    `method` is a registered name, "path/to/file.py:function", or a function(task, *, ...) -> Method.
    `task` is what the command line takes, or a Source of your own.
    """
    entry = entry_of(method) if callable(method) else find(method)
    name = entry.name if callable(method) else method
    task, given = _task_object(given)
    own = Own(entry if callable(method) else None, task)
    return run_anywhere(entry, configure(entry, name, given), observer or Observer(), own=own)


def resume(folder: str | Path, *, method: Any = None, observer: Observer | None = None, **changed: Any) -> Result:
    """Go on with a run from its newest whole checkpoint, as if it had never stopped. `changed` may say more steps.

    A run whose method or task was an object of your own needs it again: resume(folder, method=..., task=...).
    """
    place, stored = Folder.open(Path(folder))
    name = stored.pop("method")
    entry = entry_of(method) if method is not None else find(name)
    task, changed = _task_object(changed)
    config = configure(entry, name, {**stored, **changed})
    own = Own(entry if method is not None else None, task)
    return run_anywhere(entry, config, observer or Observer(), place, own)


@dataclass(frozen=True)
class Own:
    """A method and tasks that were passed as objects; None where the configuration names them."""

    entry: Entry | None = None
    task: Source | None = None


def run_anywhere(
    entry: Entry, config: Config, observer: Observer, folder: Folder | None = None, own: Own | None = None
) -> Result:
    """A run where its options say: in this process, or on Ray."""
    own = own or Own()
    if config.options.on == "ray":
        from burnish.placed.driver import run_on_ray

        return run_on_ray(entry, config, observer, folder, own)
    return execute(prepare(entry, config, folder, own.task), observer)


def _task_object(given: dict[str, Any]) -> tuple[Source | None, dict[str, Any]]:
    """A task that was passed as an object, and the options with its name in its place."""
    task = given.get("task")
    if task is None or isinstance(task, (str, os.PathLike)):
        return None, given
    return task, {**given, "task": f"{IN_PYTHON}{task.name}"}


def prepare(
    entry: Entry,
    config: Config,
    folder: Folder | None = None,
    task: Source | None = None,
    ahead: SamplesElsewhere | None = None,
) -> Run:
    """Check everything that can be checked, then load; the folder is made last, so that a mistake leaves nothing behind.

    ahead: makes what samples for this run in other places; without it the run samples here.
    """
    planned = plan(entry, config, task)
    if config.options.on == "ray" and ahead is None:
        raise ValueError(
            "--on ray places the parts of one run, and this runs them here; leave it out, or use burnish train"
        )
    config, method, settings, options = planned.config, planned.method, planned.settings, planned.config.options
    at, passed = checkpoint.newest(folder.path, folder.identity()) if folder else (None, [])
    own = settings if options.on == "here" else replace(settings, engine="local")  # on Ray, engines are the samplers'
    cast = build(method.cast, planned.base, own, lora=planned.lora, device=options.device, weights=at)
    pipeline: SamplesAhead | None = Pipeline(method, cast, settings) if settings.lag else None
    if ahead is not None:
        pipeline = ahead(method, cast, settings)
    start = checkpoint.restore(at, memories(method, pipeline), cast) if at else 0
    if folder is None:
        folder = Folder.create(config)
    else:
        folder.cut(start)
        if at is not None and not cast.ranks.rank:  # a run may have been stopped before it got to it
            checkpoint.retire(folder.path, at, options.keep, options.keep_every)
    where = f"going on from {at.name}" if at else ""
    warnings = [f"{', '.join(passed)}: passed over, {where}"] if passed else []
    return Run(config, method, planned.source, cast, settings, folder, start, warnings, pipeline)


def memories(method: Method, pipeline: SamplesAhead | None) -> dict[str, Stateful]:
    """The memory of what samples ahead, and those of the method's parts: in this order, for the first is written down when all
    that was ordered has been sampled, and only then do memories of rollout and score stand still."""
    return {**({pipeline.name: pipeline} if pipeline else {}), **method.stateful()}


def execute(run: Run, observer: Observer) -> Result:
    """The run itself. Ctrl-C lets the step finish, saves, and says how to go on; a second one stops at once.

    A run that fails before its first step is done has nothing to go on with: its folder is taken away again.
    """
    try:
        with recording(run) as record:
            return _execute(run, observer, record)
    except BaseException:
        run.folder.discard_if_unused()
        raise
    finally:
        run.cast.end()


def recording(run: Run) -> Recording:
    """The line to the run's store."""
    normal = limits(run)
    facts = {"config": run.config.to_dict(), "lr": run.settings.lr, "limits": asdict(normal), "start": run.start}
    tokenizer = run.cast[run.method.product].chat.tokenizer
    options, path = run.config.options, run.folder.path
    sinks = open_sinks(options.log, path, run.config.to_dict())
    return Recording(path, tokenizer, facts=facts, limits=normal, traces=options.record, sinks=sinks)


def limits(run: Run) -> Limits:
    """What this run's settings make normal, for those who watch over it."""
    precision = torch.float32 if run.about.device == "cpu" else torch.bfloat16
    return Limits(run.settings.max_new_tokens, logp_apart=ALARM[precision])


def _execute(run: Run, observer: Observer, record: Recording) -> Result:
    options, folder = run.config.options, run.folder
    observer.started(run)
    before = _before(run, observer)
    at = run.start
    stopped = False
    saver = Saver(
        folder.path, run.memories(), run.cast, run=folder.identity(), keep=options.keep, keep_every=options.keep_every,
        before_writing=record.flush,
    )  # fmt: skip
    watch = Watch(run, observer, saver, record)
    with polite_interrupt(observer) as asked, saver:
        for report in _timed(
            loop(
                run.method,
                run.cast,
                run.settings,
                steps=options.steps,
                seed=options.seed,
                start=run.start,
                pipeline=run.pipeline,
            )
        ):
            at = report.clock.step + 1
            heldout = _during(run, at)
            watch.measure(report)
            record.step(report, heldout)
            observer.stepped(report, heldout, report.seconds["step"])
            watch.stepped(report)
            save = partial(watch.save, at)
            told = record.told_to_stop(at - 1, save=save, interrupted=lambda: bool(asked), heard=observer.ordered)
            stopped = (bool(asked) or told) and at < options.steps
            if stopped or at == options.steps or (options.save_every and at % options.save_every == 0):
                save()
            if stopped:
                break
        watch.over(stopped)
    if stopped:
        record.ended = "stopped"
        result = Result(folder.path, None, before, None, folder.metrics(), stopped=True)
        observer.finished(result)
        return result
    after = (
        held_out(run.method, run.cast, run.source, run.settings, options.eval_tasks, done=True)
        if options.eval_tasks
        else None
    )
    if after is not None:
        observer.evaluated("after", after)
        folder.save_json("evaluation.json", {"before": before and before.to_json(), "after": after.to_json()})
    model = None
    if any(phase.learn.terms for phase in run.method.phases):
        model = folder.path / "model"
        checkpoint.publish_model(run.cast[run.method.product], model, merge=options.merge)
    result = Result(folder.path, model, before, after, folder.metrics())
    observer.finished(result)
    return result


def _before(run: Run, observer: Observer) -> Outcome | None:
    """The evaluation before training: made once, and read again by a resumed run."""
    stored = run.folder.read_json("evaluation.json")
    if stored and stored.get("before"):
        return Outcome.from_json(stored["before"])
    if not run.config.options.eval_tasks or run.start:
        return None
    before = held_out(run.method, run.cast, run.source, run.settings, run.config.options.eval_tasks)
    run.folder.save_json("evaluation.json", {"before": before.to_json()})
    observer.evaluated("before", before)
    return before


def _during(run: Run, at: int) -> dict[str, float]:
    options = run.config.options
    if not options.eval_tasks or not options.eval_every or at % options.eval_every or at == options.steps:
        return {}
    return held_out_once(run.method, run.cast, run.source, run.settings, max(1, options.eval_tasks // 2))


def _timed(reports: Iterator[Report]) -> Iterator[Report]:
    start = time.perf_counter()
    for report in reports:
        report.seconds["step"] = time.perf_counter() - start
        yield report
        start = time.perf_counter()


@contextmanager
def polite_interrupt(observer: Observer) -> Iterator[list[int]]:
    """Inside, the first Ctrl-C (or SIGTERM, which machines are taken away with) is only noted; the second interrupts."""
    asked: list[int] = []

    def note(number: int, frame: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        observer.stopping()

    try:
        earlier = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: signals are somebody else's
        yield asked
        return
    try:
        yield asked
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
