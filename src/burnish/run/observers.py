"""The observers of a run: one protocol, one ordered list, called in one place (`run/train.py`).

The order of the list is the order in which each event reaches them:

    1. Measurements  adds memory and saving time to the step's report
    2. StoreSession  records the step and events in the run store, which passes them to the sinks (wandb, ...)
    3. the caller's  the progress display and the user's callbacks, in the order given
    4. Monitor       checks the run: lost folder, failed save, rejected updates, memory; it may end the run with an
    error
    5. Control       follows orders (pause, checkpoint, stop), saves the checkpoints that are due, decides whether to
    stop

So a step is in the store before anyone sees it, callbacks see every step, including the one that ends the run, and a
checkpoint is written only of a step that passed the checks. An error of an observer ends the run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from burnish.core.loop import Report
from burnish.evals.heldout import Outcome
from burnish.store.records import EventLevel

if TYPE_CHECKING:
    from burnish.run.observed import ObservedRun
    from burnish.run.train import Result


class Observer:
    """What may be observed of a run; all methods are optional. A callback of a user's is a subclass
    with one of them.
    """

    def preparing(self, what: str) -> None:
        """Slow work before the run itself: other processes start."""

    def started(self, run: ObservedRun) -> None:
        """Models are loaded and the folder exists; the evaluation before training comes next."""

    def begun(self) -> None:
        """The first step comes next."""

    def evaluated(self, when: str, outcome: Outcome) -> None:
        """The evaluation "before" or "after" training is done."""

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        """A step is done: its report, its held-out metrics (where --eval-every is due) and its duration."""

    def saved(self, path: Path) -> None:
        """A checkpoint is complete and on disk. Training may have continued since it was taken."""

    def warned(self, said: str) -> None:
        """A warning; the run continues: a damaged checkpoint, a rejected update, growing memory."""

    def event(self, kind: str, text: str, *, level: EventLevel = "info", step: int | None = None) -> None:
        """An entry of the run's log; a warning is one as well."""

    def ordered(self, action: str) -> None:
        """An order came through the store: pause, resume, checkpoint or stop."""

    def stopping(self) -> None:
        """Ctrl-C was pressed; the current step is finished first. Called from a signal handler: do little."""

    def ended(self, stopped: bool) -> None:
        """The last step is done, or the run was stopped after this one."""

    def finished(self, result: Result) -> None:
        """The model is saved and evaluated, or the run was stopped."""


class Observers(Observer):
    """Several observers as one: each event goes to all of them, in order. Observers may be nested."""

    def __init__(self, *observers: Observer) -> None:
        self._list = list(observers)

    def __iter__(self) -> Iterator[Observer]:
        return iter(self._list)

    def add(self, *observers: Observer) -> None:
        self._list += observers

    def warn(self, kind: str, message: str, step: int | None = None) -> None:
        """A warning: in the run's log under its kind, and to everyone who shows it."""
        self.event(kind, message, level="warning", step=step)
        self.warned(message)

    def preparing(self, what: str) -> None:
        for one in self:
            one.preparing(what)

    def started(self, run: ObservedRun) -> None:
        for one in self:
            one.started(run)

    def begun(self) -> None:
        for one in self:
            one.begun()

    def evaluated(self, when: str, outcome: Outcome) -> None:
        for one in self:
            one.evaluated(when, outcome)

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        for one in self:
            one.stepped(report, heldout, seconds)

    def saved(self, path: Path) -> None:
        for one in self:
            one.saved(path)

    def warned(self, said: str) -> None:
        for one in self:
            one.warned(said)

    def event(self, kind: str, text: str, *, level: EventLevel = "info", step: int | None = None) -> None:
        for one in self:
            one.event(kind, text, level=level, step=step)

    def ordered(self, action: str) -> None:
        for one in self:
            one.ordered(action)

    def stopping(self) -> None:
        for one in self:
            one.stopping()

    def ended(self, stopped: bool) -> None:
        for one in self:
            one.ended(stopped)

    def finished(self, result: Result) -> None:
        for one in self:
            one.finished(result)
