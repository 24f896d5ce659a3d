"""A whole run: build, evaluate, loop, checkpoint, evaluate again, save. Observers follow it (run/observers.py)."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from burnish.checkpoint import checkpoint
from burnish.checkpoint.async_save import Saver
from burnish.compose.own_seats import SEATS, learners_of
from burnish.config.options import Config, Options
from burnish.core.loop import Report, loop
from burnish.core.method import Method
from burnish.core.parts import Stateful
from burnish.core.pending_step import SampleSource
from burnish.core.step import Settings
from burnish.evals.best import Best, Score, link_best
from burnish.evals.heldout import Outcome
from burnish.learn.mismatch import ALARM
from burnish.methods.table import Entry
from burnish.models.build import Models, build, device_named
from burnish.models.ranks import here, tell_launcher, with_others
from burnish.reward_functions.resolve import RewardSpec
from burnish.run import data_versions, kernels, reward_versions
from burnish.run.control import Control
from burnish.run.encoded import remember_texts
from burnish.run.evaluating import Evaluating
from burnish.run.folder import Folder
from burnish.run.following import Follower, agreed, created
from burnish.run.lengths import Lengths, Needs, fit
from burnish.run.monitor import Measurements, Monitor
from burnish.run.observed import About, ObservedRun, held_out_size
from burnish.run.observers import Observer as Observer
from burnish.run.observers import Observers
from burnish.run.passes import passes, steps_of_epochs
from burnish.run.pipeline import Pipeline, SamplesElsewhere
from burnish.run.plan import RunPlan, plan, risky_lr
from burnish.run.same_everywhere import facts, require_same_everywhere
from burnish.run.session import StoreSession
from burnish.run.warnings import late_phases, unseen_tools
from burnish.store.health import HealthLimits
from burnish.store.reader import RunStore, open_store
from burnish.store.sinks import open_sinks
from burnish.tasks.source import Source

if TYPE_CHECKING:
    from burnish.report.notebook import Plot, Traces


UNGUARDED = (
    "the file system of {folder} has no locks, so nothing stops a second process from writing into the same run; make "
    "sure that no other process resumes it"
)


@dataclass
class Run:
    """A run that is ready for its first step: `execute` runs it."""

    config: Config
    method: Method
    source: Source
    models: Models
    settings: Settings
    folder: Folder
    start: int = 0
    warnings: dict[str, str] = field(default_factory=dict)  # by kind
    pipeline: SampleSource | None = None
    lengths: Lengths | None = None  # of a dataset's rows
    kernels: dict[str, Any] = field(default_factory=dict)  # run/kernels.py
    rewards: reward_versions.Versions = field(default_factory=dict)
    best: Best = field(default_factory=lambda: Best(Options()))
    rebuild: Callable[[Path], Models] | None = None  # the models with the weights of a checkpoint
    began: bool = False  # whether the first step has begun

    @property
    def about(self) -> About:
        """The product's model in numbers."""
        model = self.models[self.method.product]
        sizes = [(p.numel(), p.requires_grad) for p in model.module.parameters()]
        return About(
            sum(n for n, _ in sizes), sum(n for n, moves in sizes if moves), str(model.device), model.chat.assumed
        )

    @property
    def held_out(self) -> int:
        """The number of held-out tasks of an evaluation."""
        return held_out_size(self.config, self.source)

    def memories(self) -> dict[str, Stateful]:
        """The stateful parts that a checkpoint holds, by name."""
        return memories(self.method, self.pipeline, self.best, self.models)


@dataclass(frozen=True)
class Result:
    """The result of a run: held-out outcomes before and after, its files, and whether it was stopped early."""

    folder: Path
    model: Path | None
    before: Outcome | None
    after: Outcome | None
    metrics: list[dict[str, Any]] = field(repr=False)
    stopped: bool = False
    ended: str = ""  # why the run ended before its last step (--patience, --stop-at)
    best: Score | None = None  # the best held-out score of the checkpoints

    @property
    def store(self) -> RunStore:
        """The run store: result.store.traces(step=3), result.store.sql("SELECT ...")."""
        return open_store(self.folder)

    def plot(self, *names: str) -> Plot:
        """The run's curves for a notebook, or those of the named metrics: result.plot("reward", "pg/entropy")."""
        return self.store.plot(*names)

    def traces(self, step: int | None = None, **which: Any) -> Traces:
        """The stored traces: result.traces(step=3, least=0.5, search="carry"). Options are those of RunStore.traces."""
        return self.store.traces(step, **which)

    def _repr_html_(self) -> str:
        return self.store._repr_html_()


@dataclass(frozen=True)
class PassedObjects:
    """A method, a task source and rewards that were passed as Python objects; None where config.yaml names them."""

    entry: Entry | None = None
    task: Source | None = None
    rewards: tuple[RewardSpec, ...] | None = None


def prepare(
    entry: Entry,
    config: Config,
    folder: Folder | None = None,
    task: Source | None = None,
    ahead: SamplesElsewhere | None = None,
    rewards: tuple[RewardSpec, ...] | None = None,
) -> Run:
    """Check the configuration, load the models, then create the folder (last, so that an error leaves nothing behind).

    ahead: makes the sample source of a run whose samplers are other processes; without it the run samples here.
    """
    planned = plan(entry, config, task, rewards)
    if config.options.on == "ray" and ahead is None:
        raise ValueError(
            "--on ray distributes a run over actors; this is one process: leave it out, or use burnish train"
        )
    config, method, settings, options = planned.config, planned.method, planned.settings, planned.config.options
    at, passed = checkpoint.newest(folder.path, folder.identity()) if folder else (None, [])
    computing = kernels.present(device_named(options.device))
    rows = data_versions.present(planned.source)
    told = facts(planned.base, config.to_dict(), rows, planned.rewards, computing)
    require_same_everywhere(here(), told)
    changed = _changes(folder, checkpoint.step_of(at) if at else 0, planned, computing, rows) if folder else {}
    local = settings if options.on == "here" else replace(settings, engine="local")  # on Ray, samplers have the engines
    rebuild = partial(
        build,
        method.models,
        planned.base,
        local,
        lora=planned.lora,
        device=options.device,
        style=options.style(),
        dtype=options.dtype,
    )
    models = rebuild(weights=at)
    remember_texts(planned.source, models[method.product].chat)
    lengths = fit(planned.source, Needs.of(method), models, method.product, settings)
    if options.on == "here":  # on Ray the steps are those of the plan, which the driver knows as well
        config = steps_of_epochs(config, planned.source)
    pipeline: SampleSource | None = Pipeline(method, models, settings) if settings.lag else None
    if ahead is not None:
        pipeline = ahead(method, models, settings)
    best, ranks = Best(options), models.ranks
    start = checkpoint.restore(at, memories(method, pipeline, best, models), models) if at else 0
    ranks.require_same("the checkpoint to resume from", start)
    if folder is None:
        folder = created(config, ranks)
    else:
        folder.cut(start)
        folder.renew(config)
        if at is not None and folder.writes:  # the run may have been stopped before it removed old checkpoints
            checkpoint.retire(folder.path, at, options.keep, options.keep_every, best.saving(start))
    if folder.writes:
        tell_launcher(folder.path)
        kernels.record(folder, start, computing)
        reward_versions.record(folder, start, planned.rewards)
        data_versions.record(folder, start, rows)
    where = f"resuming from {at.name}" if at else ""
    warnings = {"damaged": f"{', '.join(passed)}: skipped, {where}"} if passed else {}
    possible = {
        "unguarded": "" if folder.guarded else UNGUARDED.format(folder=folder.path),
        "tools": unseen_tools(planned.source, models[method.product].chat),
        "lr": risky_lr(planned),
        "phases": late_phases(method, config.options.steps),
    }
    warnings |= changed | {kind: warning for kind, warning in possible.items() if warning}
    run = Run(
        config, method, planned.source, models, settings, folder, start, warnings, pipeline, lengths, kernels=computing
    )
    run.best, run.rebuild, run.rewards = best, lambda path: rebuild(weights=path), planned.rewards
    return run


def _changes(
    folder: Folder, start: int, planned: RunPlan, computing: dict[str, object], rows: reward_versions.Versions
) -> dict[str, str]:
    """Warnings by kind: what a run that resumes after step `start` has in another version than before."""
    changes = {
        "kernels": kernels.change(folder, start, computing, planned.config.options.exact),
        "rewards": reward_versions.change(folder, start, planned.rewards),
        "data": data_versions.change(folder, start, rows),
    }
    return {kind: warning for kind, warning in changes.items() if warning}


def memories(method: Method, pipeline: SampleSource | None, best: Best, models: Models) -> dict[str, Stateful]:
    """The stateful parts of a run: the pipeline, then the method's parts, the held-out scores, and what fits in memory.

    The pipeline comes first, because its state_dict waits for the sampling thread: only after that the state of rollout
    and score no longer changes.
    """
    room = models.token_room
    return {**({pipeline.name: pipeline} if pipeline else {}), **method.stateful(), best.name: best, room.name: room}


def execute(run: Run, observer: Observer) -> Result:
    """Execute a run. Ctrl-C finishes the step, saves, and prints the resume command; a second one stops at once.

    If the run fails before its first step begins, its folder is removed: `burnish runs` lists one whose first step
    failed, with the reason. The folder is locked while the run lasts.
    """
    try:
        run.folder.lock()
        with with_others():  # where weights are divided, every pass is an exchange with the other ranks
            if run.models.ranks.rank:
                return _execute(run, Observers(), Follower(), Saver(run.folder.path, run.memories(), run.models))
            with store_session(run) as session:
                saver = _saver(run, session)
                return _execute(run, *observed_by(run, observer, session, saver), saver)
    except BaseException:
        if not run.began:
            run.folder.discard_if_unused()
        raise
    finally:
        run.folder.release()
        run.models.end()
        if run.folder.writes and (texts := run.models[run.method.product].chat.texts) is not None:
            texts.save()


def store_session(run: Run) -> StoreSession:
    """The run's session with its store."""
    normal = limits(run)
    facts = {"config": run.config.to_dict(), "lr": run.settings.lr, "limits": asdict(normal), "start": run.start}
    facts["kernels"], facts["rewards"] = run.kernels, run.rewards
    facts["data"] = {"passes": passes(run.config, run.source), "long": run.lengths and asdict(run.lengths)}
    tokenizer = run.models[run.method.product].chat.tokenizer
    options, path = run.config.options, run.folder.path
    sinks = open_sinks(options.log, path, run.config.to_dict())
    return StoreSession(path, tokenizer, facts=facts, limits=normal, traces=options.record, sinks=sinks)


def limits(run: ObservedRun) -> HealthLimits:
    """Health-check thresholds derived from the run's settings."""
    precision = torch.float32 if run.about.device == "cpu" else torch.bfloat16
    return HealthLimits(run.settings.max_new_tokens, logp_apart=ALARM[precision])


def observed_by(run: Run, observer: Observer, session: StoreSession, saver: Saver) -> tuple[Observers, Control]:
    """Everyone who observes the run, in the order of run/observers.py, and the one of them who stops it."""
    everyone = Observers()
    monitor = Monitor(run, saver, session, everyone)
    control = Control(run, session, monitor, everyone)
    everyone.add(Measurements(saver), session, observer, monitor, control)
    return everyone, control


def _saver(run: Run, session: StoreSession) -> Saver:
    options, folder = run.config.options, run.folder
    keep = {"keep": options.keep, "keep_every": options.keep_every}
    return Saver(folder.path, run.memories(), run.models, run=folder.identity(), before_writing=session.flush, **keep)


def _execute(run: Run, everyone: Observers, control: Control | Follower, saver: Saver) -> Result:
    options, folder, ranks = run.config.options, run.folder, run.models.ranks
    everyone.started(run)
    evaluating = Evaluating(run, everyone)
    before = evaluating.before()
    steps, at = {"steps": options.steps, "seed": options.seed, "start": run.start}, run.start
    with graceful_interrupt(everyone) as control.signals, saver:
        everyone.begun()
        run.began = True
        early = run.best.ends()  # a run that ended early stays ended when it is resumed
        reports = () if early else loop(run.method, run.models, run.settings, pipeline=run.pipeline, **steps)
        for report in _timed(iter(reports)):
            at = report.clock.step + 1
            heldout = evaluating.during(at)
            run.best.measured(at, heldout)
            everyone.stepped(report, heldout, report.seconds["step"])
            early = run.best.ends() if at < options.steps else ""
            control.stopped, run.best.kept = agreed(run.models, control.stopped, run.best.kept)
            if control.stopped or early:
                break
        everyone.ended(control.stopped)
    ranks.require_same("the number of steps done", at)  # the last checkpoint is on disk
    if control.stopped:
        folder.confirm()
        result = Result(folder.path, None, before, None, folder.metrics(), stopped=True)
        everyone.finished(result)
        return result
    if early:
        everyone.event("ended", early, step=at - 1)
    _take_best(run, at, everyone)
    after = evaluating.after(before)
    _rank_last(run, at, after)
    model = None
    folder.confirm()
    if any(phase.learn.trainees for phase in run.method.phases):
        model = folder.path / "model"
    if model is not None:
        checkpoint.publish_product(run.models, run.method.product, model, merge=options.merge)
        for name in learners_of(run.method):
            place = folder.path / SEATS / name.removeprefix("opponent_")
            place.parent.mkdir(exist_ok=True)
            checkpoint.publish_product(run.models, name, place, merge=options.merge)
    folder.confirm()  # a run whose folder is gone must end with an error
    kept = run.best.kept if options.keep_best else None
    result = Result(folder.path, model, before, after, folder.metrics(), ended=early, best=kept)
    everyone.finished(result)
    return result


def _take_best(run: Run, at: int, everyone: Observers) -> None:
    """With --product best: replace the models by those of the best checkpoint, if it is not the last one."""
    kept = run.best.kept
    if run.config.options.product != "best" or kept is None or kept.step == at or run.rebuild is None:
        return
    run.models.end()
    run.models = run.rebuild(checkpoint.path_of(run.folder.path, kept.step))
    everyone.event("best", f"model/ has the weights after step {kept.step}: held-out {kept.name} {kept.value:.3f}")


def _rank_last(run: Run, at: int, after: Outcome | None) -> None:
    """Let the last checkpoint be the best one, if the evaluation after training says so."""
    last = after and Score(after.name.removeprefix("held-out "), at, after.value.mean)
    if not last or run.config.options.product == "best" or not run.config.options.keep_best:
        return
    if run.best.kept is not None and last.better(run.best.kept):
        run.best.kept = last
        if not run.folder.writes:
            return
        link_best(run.folder.path, checkpoint.path_of(run.folder.path, at), run.method.product)


def _timed(reports: Iterator[Report]) -> Iterator[Report]:
    start = time.perf_counter()
    for report in reports:
        report.seconds["step"] = time.perf_counter() - start
        yield report
        start = time.perf_counter()


@contextmanager
def graceful_interrupt(observer: Observer) -> Iterator[list[int]]:
    """Inside, the first SIGINT (Ctrl-C) or SIGTERM (preemption) is appended to the yielded list; a second one
    interrupts.
    """
    received: list[int] = []

    def note(number: int, frame: object) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)
        observer.stopping()

    try:
        earlier = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # only the main thread can set signal handlers
        yield received
        return
    try:
        yield received
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)
