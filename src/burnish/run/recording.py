"""A run's line to its store while it lasts: steps and events go out, orders come in, and how it ended is written down."""

from __future__ import annotations

import contextlib
import copy
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from burnish.loop import Report
from burnish.report.control import Orders
from burnish.report.environment import environment, git_state, process
from burnish.report.health import Limits
from burnish.report.recorder import Recorder, Sink
from burnish.report.schema import FILE, connect

LOOK_SECONDS = 0.2  # how often a paused run looks for orders


class Recording:
    """Opened for the time of a run: `with Recording(...) as record:`.

    tokenizer  for reading traces; the writer's thread gets a copy of its own
    facts      about the run, e.g. its configuration
    traces     how many of each step are kept
    """

    def __init__(
        self,
        folder: Path,
        tokenizer: Any,
        *,
        facts: dict[str, Any],
        limits: Limits,
        traces: int,
        sinks: Sequence[Sink] = (),
    ) -> None:
        self.folder, self.ended = folder, "finished"
        connect(folder / FILE).close()  # whoever looks from now on finds the tables
        self._recorder = Recorder(folder, copy.deepcopy(tokenizer), traces=traces, limits=limits, sinks=sinks)
        self._orders = Orders(folder)
        self._facts = facts

    def __enter__(self) -> Recording:
        known = {"environment": environment(), "git": git_state(Path.cwd()), "created": time.time()}
        if self._facts.get("start"):
            del known["created"]  # a resumed run is as old as it was
        self._recorder.info(**known, **self._facts, state="running", paused=False, process=process())
        start = self._facts.get("start")
        self.event("resumed" if start else "started", f"going on after step {start}" if start else "from the beginning")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._orders.close()
        if error is None:
            self.event(
                self.ended, "burnish train --resume goes on" if self.ended == "stopped" else "all steps are done"
            )
            self._recorder.info(state=self.ended)
            self._recorder.close()
            return
        with contextlib.suppress(ValueError):  # the store itself may be what failed
            ended = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            self._recorder.event(ended, f"{type(error).__name__}: {error}".rstrip(": "), level="error")
            self._recorder.info(state=ended)
            self._recorder.close()

    def step(self, report: Report, extra: dict[str, float]) -> None:
        """A step: its numbers, its seconds, and the first of its traces."""
        self._recorder.step(report, extra)

    def event(self, kind: str, text: str, *, level: str = "info", step: int | None = None) -> None:
        self._recorder.event(kind, text, level=level, step=step)

    def flush(self) -> None:
        """What was logged is on the disk when this returns: a checkpoint that is written next finds it there."""
        self._recorder.flush()

    def told_to_stop(
        self, step: int, *, save: Callable[[], None], interrupted: Callable[[], bool], heard: Callable[[str], None]
    ) -> bool:
        """Do what was ordered since the last look. A paused run waits here, until it is told to go on or to stop.

        save         writes a checkpoint, also during a pause
        interrupted  whether Ctrl-C was pressed, which ends a pause
        heard        hears of each order, for the screen
        """
        paused = stop = False
        while True:
            for action in self._orders.heard():
                self.event(action, "ordered from outside", step=step)
                heard(action)
                stop = stop or action == "stop"
                if action == "checkpoint":
                    save()
                if action in ("pause", "resume"):
                    paused = action == "pause"
                    self._recorder.info(paused=paused)
            if not paused or stop or interrupted():
                return stop
            time.sleep(LOOK_SECONDS)
