"""Checks during a run: rejected updates, memory growth, disk space, finished checkpoints, warnings of samplers."""

from __future__ import annotations

from collections import deque
from functools import cached_property
from typing import TYPE_CHECKING

from burnish.checkpoint.async_save import Saver
from burnish.checkpoint.checkpoint import step_of
from burnish.compose.chunked import memories_of
from burnish.compose.played_on import waiting_in
from burnish.core.loop import Report
from burnish.core.scorer import is_failed
from burnish.evals.best import link_best
from burnish.run.learned import require_learned, scored_the_same, trains
from burnish.run.memory import RISES, WINDOW, growing, resident_mb
from burnish.run.observers import Observer, Observers
from burnish.run.pipeline import uncorrected
from burnish.run.rejected_updates import keep_batches, sentence, stop_if_hopeless
from burnish.run.reward_failures import RewardFailures
from burnish.run.session import StoreSession

if TYPE_CHECKING:
    from burnish.run.train import Run


_PACES = ("lag", "chunk", "train_when", "step_deadline")  # settings by which replies become older than the weights


class Measurements(Observer):
    """Adds memory and saving time to a step's report, before anyone reads it; neither is part of the metrics."""

    def __init__(self, saver: Saver) -> None:
        self.saver = saver

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        report.memory = resident_mb()
        report.seconds["saving"] = self.saver.stalled()


class Monitor(Observer):
    """Checks the run and warns everyone: once per kind, but of every rejected update."""

    def __init__(self, run: Run, saver: Saver, session: StoreSession, everyone: Observers) -> None:
        self.run, self.saver, self.session, self.everyone = run, saver, session, everyone
        self.memory: deque[float] = deque(maxlen=WINDOW * (RISES + 1))  # no more than `growing` reads
        self.known: set[str] = set()
        self.unrewarded = "the reward function failed"

    @cached_property
    def failures(self) -> RewardFailures:
        """The limit on replies without a reward."""
        options = self.run.config.options
        return RewardFailures(options.max_reward_failures, options.on_reward_failure == "drop")

    def begun(self) -> None:
        run = self.run
        for kind, warning in run.warnings.items():
            self._warn(run.start, kind, warning)
        self._report_models(run.start)
        if run.pipeline is not None:
            run.pipeline.say = self.everyone.warned
        options = [
            f"--{name.replace('_', '-')} {getattr(run.settings, name)}"
            for name in _PACES
            if getattr(run.settings, name)
        ]
        if options and uncorrected(run.method):
            self._warn(run.start, "lag", _stale(run.config.method, " ".join(options)))
        if shortage := self.saver.shortage():
            self._warn(run.start, "disk", f"{shortage}: free some before the first is due")

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        """Check the run after a recorded step.

        Raises the error of a failed save or a lost folder, and FloatingPointError if rejected updates end the run.
        """
        step = report.clock.step
        self.run.folder.confirm()
        self._report_saved()
        self.memory.append(report.memory)
        if grown := growing(self.memory):
            self._warn(step, "memory", grown)
        if report.metrics.get("reward_failures"):
            self._warn(step, "reward", _unrewarded(report))
        if failed := report.metrics.get("env_failures"):
            why = _why(report, "the agent had ended, or run out of time, before it asked for a reply")
            self._warn(step, "env", f"step {step + 1}: episodes failed ({failed:.0f}): {why}")
        if report.metrics.get("reward_failures"):
            self.unrewarded = _why(report)
        self.failures.saw(report, _why(report))
        self._report_models(step)
        if report.refusals:
            kept = keep_batches(self.run.folder.path, report, self.run.models[self.run.method.product].chat)
            message = sentence(report, kept)
            self._warn(step, f"refused at step {step}", message)
            policy = self.run.config.options.on_nan
            self.session.flush()  # so that folder.metrics() includes this step
            stop_if_hopeless(report, policy, self.run.folder.metrics(), self.run.models, message)

    def save(self, step: int) -> None:
        """Start writing a checkpoint, after the previous one is on disk and reported."""
        self.wait_for_saving()
        self.run.folder.confirm()
        self.saver.save(step, self.run.best.saving(step))

    def wait_for_saving(self) -> None:
        """Wait until the checkpoint being written is on disk."""
        self.saver.wait()
        self._report_saved()

    def ended(self, stopped: bool) -> None:
        """Wait for saving; warn about replies that stay unfinished; raise ValueError if nothing was learned."""
        self.wait_for_saving()
        if not stopped and trains(self.run.method):
            self.session.flush()  # so that folder.metrics() includes the last step
            history = self.run.folder.metrics()
            require_learned(history, self.failures.dropped, self.unrewarded)
            if warning := scored_the_same(history):
                self._warn(len(history) - 1, "learned", warning)
        phases = self.run.method.phases
        left = sum(waiting.replies() for phase in phases for waiting in memories_of(phase))
        left += sum(waiting.replies() for phase in phases for waiting in waiting_in(phase))
        if left and not stopped:
            message = (
                f"{left} replies were still being written when the run ended, and are not learned from; its last "
                "checkpoint holds them"
            )
            self._warn(self.run.config.options.steps - 1, "unfinished", message)

    def _report_saved(self) -> None:
        for path in self.saver.finished():
            kept = self.run.best.kept
            if kept is not None and kept.step == step_of(path) and self.run.config.options.keep_best:
                link_best(self.run.folder.path, path, self.run.method.product)
            self.everyone.saved(path)

    def _report_models(self, step: int) -> None:
        room = self.run.models.token_room
        while room.warnings:
            message = room.warnings.pop(0)
            self._warn(step, f"memory {message}", message)
        for model in self.run.models:
            while model.warnings:  # popped one by one: the sampling thread may be adding to the list
                message = model.warnings.pop(0)
                self._warn(step, f"sampler {message}", message)

    def _warn(self, step: int, kind: str, message: str) -> None:
        if kind not in self.known:
            self.known.add(kind)
            self.everyone.warn(kind.split()[0], message, step)


def _stale(method: str, options: str) -> str:
    return (
        f"{method} does not use the log-probs of the sampling policy: with {options} it learns from replies of older "
        "weights as if they were fresh (methods with an importance weight, like grpo, ppo or tis, correct for that)"
    )


def _unrewarded(report: Report) -> str:
    failed = report.metrics["reward_failures"]
    return f"step {report.clock.step + 1}: {failed:.0f} replies got no reward: {_why(report)}"


def _why(report: Report, otherwise: str = "the reward function failed") -> str:
    """Why the first reply without a reward has none; an episode in which nothing was said left no trace of its own."""
    kept = (trace for groups in report.groups.values() for group in groups for trace in group.traces)
    dropped = (one.trace for removed in report.dropped.values() for one in removed)
    reasons = (trace.note["why"] for trace in (*kept, *dropped) if is_failed(trace))
    return next(reasons, otherwise)
