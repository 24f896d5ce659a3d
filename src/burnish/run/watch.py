"""What is looked after while a run runs: refused updates, memory, the disk, and checkpoints that became whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

from burnish.loop import Report
from burnish.rollout.chunked import memories_of
from burnish.run.memory import growing, resident_mb
from burnish.run.pipeline import uncorrected
from burnish.run.recording import Recording
from burnish.run.refused import keep_batches, sentence, stop_if_hopeless
from burnish.run.saving import Saver

if TYPE_CHECKING:
    from burnish.run.train import Observer, Run


class Watch:
    """Warnings go to the observer and into the run store; each kind but refusals is said once."""

    def __init__(self, run: Run, observer: Observer, saver: Saver, record: Recording) -> None:
        self.run, self.observer, self.saver, self.record = run, observer, saver, record
        self.memory: list[float] = []
        self.said: set[str] = set()
        for warning in run.warnings:
            self._warn(run.start, "damaged", warning)
        if run.pipeline is not None:
            run.pipeline.say = observer.warned
        older = [f"--{name} {getattr(run.settings, name)}" for name in ("lag", "chunk") if getattr(run.settings, name)]
        if older and uncorrected(run.method):
            self._warn(run.start, "lag", _stale(run.config.method, " ".join(older)))
        if room := saver.room():
            self._warn(run.start, "disk", f"{room}: free some before the first is due")

    def measure(self, report: Report) -> None:
        """Complete a step's report with what only the run knows; neither is part of the metrics."""
        report.memory = resident_mb()
        report.seconds["saving"] = self.saver.stalled()

    def stepped(self, report: Report) -> None:
        """After a step is logged. Raises what went wrong with saving, and FloatingPointError where refusals end the run."""
        step = report.clock.step
        self._tell_saved()
        self.memory.append(report.memory)
        if grown := growing(self.memory):
            self._warn(step, "memory", grown)
        if report.metrics.get("reward_failures"):
            self._warn(step, "reward", _unrewarded(report))
        for member in self.run.cast:
            while member.said:  # one by one: the thread that samples may be adding to them
                said = member.said.pop(0)
                self._warn(step, f"sampler {said}", said)
        if report.refusals:
            kept = keep_batches(self.run.folder.path, report, self.run.cast[self.run.method.product].chat)
            said = sentence(report, kept)
            self._warn(step, f"refused at step {step}", said)
            policy = self.run.config.options.on_nan
            self.record.flush()  # what is asked next is about this step too
            stop_if_hopeless(report, policy, self.run.folder.metrics(), self.run.cast, said)

    def save(self, step: int) -> None:
        """Have a checkpoint written, once the one before it is on the disk and has been told of."""
        self.wait_for_saving()
        self.saver.save(step)

    def wait_for_saving(self) -> None:
        """Until what is being written is on the disk."""
        self.saver.wait()
        self._tell_saved()

    def over(self, stopped: bool) -> None:
        """After the last step: until all is on the disk; replies that nobody will write on any more are told of."""
        self.wait_for_saving()
        left = sum(waiting.replies() for phase in self.run.method.phases for waiting in memories_of(phase))
        if left and not stopped:
            said = f"{left} replies were still being written when the run ended, and are not learned from; its last checkpoint holds them"
            self._warn(self.run.config.options.steps - 1, "unfinished", said)

    def _tell_saved(self) -> None:
        for path in self.saver.finished():
            self.observer.saved(path)
            self.record.event("saved", path.name)

    def _warn(self, step: int, kind: str, said: str) -> None:
        if kind not in self.said:
            self.said.add(kind)
            self.record.event(kind.split()[0], said, level="warning", step=step)
            self.observer.warned(said)


def _stale(method: str, options: str) -> str:
    return (
        f"{method} never asks how likely a reply was when it was sampled: with {options} it learns from replies of older "
        "weights as if they were fresh (methods with an importance weight, like grpo, ppo or tis, correct for that)"
    )


def _unrewarded(report: Report) -> str:
    notes = (t.note.get("why") for groups in report.groups.values() for group in groups for t in group.traces)
    why = next((note for note in notes if note), "the reward function failed")
    return f"step {report.clock.step + 1}: {report.metrics['reward_failures']:.0f} replies got no reward: {why}"
