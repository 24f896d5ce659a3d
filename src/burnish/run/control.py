"""The last observer of a run: it follows orders, saves the checkpoints that are due, and decides when to stop."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from burnish.core.loop import Report
from burnish.run.monitor import Monitor
from burnish.run.observers import Observer, Observers
from burnish.run.session import StoreSession

if TYPE_CHECKING:
    from burnish.run.train import Run


class Control(Observer):
    """stopped: whether the run ends after this step, before its last one.

    signals: those received since the first step (`graceful_interrupt`); the first one stops the run.
    """

    def __init__(self, run: Run, session: StoreSession, monitor: Monitor, everyone: Observers) -> None:
        self.run, self.session, self.monitor, self.everyone = run, session, monitor, everyone
        self.signals: list[int] = []
        self.stopped = False

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        options, at = self.run.config.options, report.clock.step + 1
        save = partial(self.monitor.save, at)
        ordered = self.session.follow_orders(
            at - 1, save=save, interrupted=lambda: bool(self.signals), on_order=self.everyone.ordered
        )
        early, best = self.run.best.ends(), self.run.best.due(at)
        self.stopped = (bool(self.signals) or ordered) and at < options.steps and not early
        due = best or (options.save_every and at % options.save_every == 0)
        if self.stopped or early or at == options.steps or due:
            save()
