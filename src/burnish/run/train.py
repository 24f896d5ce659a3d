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

from burnish.cast.budget import token_budget
from burnish.cast.lora import Lora
from burnish.cast.models import adapted_model, is_adapter, resolve
from burnish.cast.stage import Cast, build
from burnish.learn.mismatch import ALARM
from burnish.loop import Report, loop
from burnish.method import Method
from burnish.methods.table import Entry, entry_of, find
from burnish.parts import Stateful
from burnish.report.health import Limits
from burnish.report.sinks import open_sinks
from burnish.report.store import Store, open_store
from burnish.rollout.chunked import chunked
from burnish.run import checkpoint
from burnish.run.checks import check_engine, check_options
from burnish.run.config import Config, configure
from burnish.run.folder import Folder
from burnish.run.heldout import Outcome, held_out, held_out_once
from burnish.run.pipeline import Pipeline, require_pipelined
from burnish.run.recording import Recording
from burnish.run.saving import Saver
from burnish.run.watch import Watch
from burnish.step import Settings
from burnish.swap import swapped
from burnish.tasks.resolve import IN_PYTHON, resolve_task
from burnish.tasks.source import Source

if TYPE_CHECKING:
    from burnish.report.notebook import Plot, Traces


class Observer:
    """Hears what a run does. Every method may be left as it is; the command line draws with them."""

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
    pipeline: Pipeline | None = None

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
    return execute(prepare(entry, configure(entry, name, given), task=task), observer or Observer())


def resume(folder: str | Path, *, method: Any = None, observer: Observer | None = None, **changed: Any) -> Result:
    """Go on with a run from its newest whole checkpoint, as if it had never stopped. `changed` may say more steps.

    A run whose method or task was an object of your own needs it again: resume(folder, method=..., task=...).
    """
    place, stored = Folder.open(Path(folder))
    name = stored.pop("method")
    entry = entry_of(method) if method is not None else find(name)
    task, changed = _task_object(changed)
    config = configure(entry, name, {**stored, **changed})
    return execute(prepare(entry, config, place, task), observer or Observer())


def _task_object(given: dict[str, Any]) -> tuple[Source | None, dict[str, Any]]:
    """A task that was passed as an object, and the options with its name in its place."""
    task = given.get("task")
    if task is None or isinstance(task, (str, os.PathLike)):
        return None, given
    return task, {**given, "task": f"{IN_PYTHON}{task.name}"}


def prepare(entry: Entry, config: Config, folder: Folder | None = None, task: Source | None = None) -> Run:
    """Check everything that can be checked, then load; the folder is made last, so that a mistake leaves nothing behind."""
    options = config.options
    check_options(config)
    base = resolve(options.model)
    if options.lora is not None and is_adapter(base):
        raise ValueError(
            f"{base} holds LoRA adapters, and --lora would put others on top of them; leave out --lora, or go on with that "
            "run by --resume"
        )
    dropped = options.on_reward_failure == "drop"
    source = resolve_task(
        task or options.task, options.reward, seconds=options.reward_timeout, drop_failed=dropped, workers=options.reward_workers
    )  # fmt: skip
    if options.eval_tasks and source.size("heldout") == 0:
        raise ValueError(
            f"task {source.name!r} has no held-out rows to evaluate on; give it more rows, or leave evaluation out "
            "with --eval-tasks 0"
        )
    method = entry.build(source, **config.arguments)
    if options.swap:
        method = swapped(method, options.swap)
    if options.chunk is not None:
        method = chunked(replace(method, name=config.method))
    check_engine(config, method)
    require_pipelined(replace(method, name=config.method), options.lag, options.steps)
    if options.lora is not None and any(
        role.liveness in ("ema", "snapshot") and role.follows == "policy" for role in method.cast.values()
    ):
        raise ValueError(
            f"{config.method} has members that follow the policy's weights, which LoRA does not move; leave out --lora"
        )
    at, passed = checkpoint.newest(folder.path, folder.identity()) if folder else (None, [])
    lora = Lora(options.lora) if options.lora is not None else None
    lr = options.lr if options.lr is not None else default_lr(base, lora) * method.lr_share
    budget = options.token_budget
    if (
        budget is None
    ):  # written down in config.yaml: a resumed run must not choose anew, by the memory that is free then
        budget = token_budget(adapted_model(base), options.device)
        config = replace(config, options=replace(options, token_budget=budget))
    settings = options.settings(lr, budget)
    cast = build(method.cast, base, settings, lora=lora, device=options.device, weights=at)
    pipeline = Pipeline(method, cast, settings) if settings.lag else None
    start = checkpoint.restore(at, memories(method, pipeline), cast) if at else 0
    if folder is None:
        folder = Folder.create(config)
    else:
        folder.cut(start)
    where = f"going on from {at.name}" if at else ""
    warnings = [f"{', '.join(passed)}: passed over, {where}"] if passed else []
    return Run(config, method, source, cast, settings, folder, start, warnings, pipeline)


def memories(method: Method, pipeline: Pipeline | None) -> dict[str, Stateful]:
    """The memory of what samples ahead, and those of the method's parts: in this order, for the first is written down when all
    that was ordered has been sampled, and only then do memories of rollout and score stand still."""
    return {**({pipeline.name: pipeline} if pipeline else {}), **method.stateful()}


def default_lr(base: Path, lora: Lora | None) -> float:
    """By size, on disk at two bytes a weight: 1e-4 to 10M weights, 1e-5 to 500M, 1e-6 beyond; ten times that for LoRA."""
    size = sum(file.stat().st_size for file in adapted_model(base).glob("*.safetensors")) / 2
    lr = 1e-4 if size < 1e7 else 1e-5 if size < 1e9 else 1e-6
    return lr * 10 if lora and size >= 1e7 else lr


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
    precision = torch.float32 if run.cast[run.method.product].device.type == "cpu" else torch.bfloat16
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
    with _polite_interrupt(observer) as asked, saver:
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
def _polite_interrupt(observer: Observer) -> Iterator[list[int]]:
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
