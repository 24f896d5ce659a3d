"""A run's session with its store: writes steps, events and the final state; reads orders (pause, stop, checkpoint)."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from burnish.core.loop import Report
from burnish.run.observers import Observer
from burnish.store.control import Orders
from burnish.store.environment import environment, process
from burnish.store.gitstate import git_state
from burnish.store.health import HealthLimits
from burnish.store.recorder import RunRecorder, Sink
from burnish.store.records import EventLevel
from burnish.store.schema import FILE, connect

POLL_SECONDS = 0.2  # how often a paused run checks for orders


class StoreSession(Observer):
    """Open while the run lasts: `with StoreSession(...) as session:`.

    tokenizer  decodes traces; the writer thread gets its own copy
    facts      about the run, e.g. its configuration
    traces     how many traces of each step are kept
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: Any,
        *,
        facts: dict[str, Any],
        limits: HealthLimits,
        traces: int,
        sinks: Sequence[Sink] = (),
    ) -> None:
        self.folder, self.outcome = folder, "finished"
        connect(folder / FILE).close()  # creates the tables, so that readers find them from now on
        self._recorder = RunRecorder(folder, copy.deepcopy(tokenizer), traces=traces, limits=limits, sinks=sinks)
        self._orders = Orders(folder)
        self._facts = facts

    def __enter__(self) -> StoreSession:
        known = {"environment": environment(), "git": git_state(Path.cwd()), "created": time.time()}
        if self._facts.get("start"):
            del known["created"]  # a resumed run keeps its creation time
        self._recorder.info(**known, **self._facts, state="running", paused=False, process=process())
        start = self._facts.get("start")
        self.event("resumed" if start else "started", f"resuming after step {start}" if start else "from the beginning")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._orders.close()
        if error is None:
            self.event(
                self.outcome, "burnish train --resume continues" if self.outcome == "stopped" else "all steps are done"
            )
            self._recorder.info(state=self.outcome)
            self._recorder.close()
            return
        with contextlib.suppress(ValueError):  # the store itself may be what failed
            ended = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            self._recorder.event(ended, f"{type(error).__name__}: {error}".rstrip(": "), level="error")
            self._recorder.info(state=ended)
            self._recorder.close()

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        """Store a step: its metrics (and the held-out ones), its timings, and the first of its traces."""
        self._recorder.step(report, heldout)

    def saved(self, path: Path) -> None:
        self.event("saved", path.name)

    def ended(self, stopped: bool) -> None:
        self.outcome = "stopped" if stopped else "finished"

    def event(self, kind: str, text: str, *, level: EventLevel = "info", step: int | None = None) -> None:
        self._recorder.event(kind, text, level=level, step=step)

    def flush(self) -> None:
        """Wait until everything logged is on disk: a checkpoint must not be newer than the log."""
        self._recorder.flush()

    def follow_orders(
        self, step: int, *, save: Callable[[], None], interrupted: Callable[[], bool], on_order: Callable[[str], None]
    ) -> bool:
        """Carry out the orders since the last call; return whether to stop. A paused run waits here.

        save         writes a checkpoint, also during a pause
        interrupted  whether Ctrl-C was pressed, which ends a pause
        on_order     called with each order, for the progress display
        """
        paused = stop = False
        while True:
            for action in self._orders.poll():
                self.event(action, "ordered from outside", step=step)
                on_order(action)
                stop = stop or action == "stop"
                if action == "checkpoint":
                    save()
                if action in ("pause", "resume"):
                    paused = action == "pause"
                    self._recorder.info(paused=paused)
            if not paused or stop or interrupted():
                return stop
            time.sleep(POLL_SECONDS)
