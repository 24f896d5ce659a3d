"""The trainer actor: the run itself, as it runs without Ray, with samplers and graders in other processes.

It owns weights, memories, checkpoints and the run store. Whoever started it asks for news a few times a second: what the run
has to tell, which actors were lost and which are wanted. That question is also how its own death or silence is noticed.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from burnish.cast.load import load_chat, load_model
from burnish.loop import Report
from burnish.placed.actors import tensors_as_bytes, whereabouts
from burnish.placed.crew import Limits
from burnish.placed.pipeline import Placed
from burnish.placed.stagehand import Doing, Spec
from burnish.run.folder import Folder
from burnish.run.heldout import Outcome
from burnish.run.train import Observer, Result, Run, execute, prepare


class Relay(Observer):
    """Hears the run, and keeps what is to be told: plain values, no models."""

    def __init__(self, doing: Doing) -> None:
        self.doing, self.events = doing, deque[tuple[str, Any]]()

    def started(self, run: Run) -> None:
        self._tell("started", (run.start, run.about))
        self.doing.now("measuring before training, or the first step")

    def evaluated(self, when: str, outcome: Outcome) -> None:
        self._tell("evaluated", (when, outcome))

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        light = replace(report, groups={}, dropped={}, refusals=[], looks={}, ledger=[], units=[])
        self._tell("stepped", (light, heldout, seconds))
        self.doing.now(f"after step {report.clock.step + 1}")

    def saved(self, path: Path) -> None:
        self._tell("saved", (path,))

    def warned(self, said: str) -> None:
        self._tell("warned", (said,))

    def ordered(self, action: str) -> None:
        self._tell("ordered", (action,))

    def _tell(self, what: str, values: tuple[Any, ...]) -> None:
        self.events.append((what, values))


Joining = tuple[str, str, Any, dict[str, Any] | None]  # name, role, handle, and its process where it is ready


@dataclass
class News:
    """What a trainer tells.

    events    calls of an observer;  happened   rows for the run store
    lost      actors by name, and why;  wanted   how many more of each role;  where   the processes of those that are ready
    filled    whether every place was filled once, so that spares may be started
    """

    events: list[tuple[str, Any]]
    happened: list[tuple[float, str, str, str]]
    lost: dict[str, str]
    wanted: dict[str, int]
    filled: bool
    where: dict[str, dict[str, Any]]
    doing: tuple[str, float]


class Trainer:
    """The actor. It stands ready, with everything imported, until it is told to train."""

    def __init__(self, name: str, role: str, spec: Spec) -> None:
        self.name, self.spec = name, spec
        self.doing = Doing()
        self.relay = Relay(self.doing)
        self.placed: Placed | None = None
        self.joining: list[Joining] = []
        self.lock = threading.Lock()
        tensors_as_bytes()

    def ready(self) -> dict[str, Any]:
        """Import what a run needs, by loading its model once for nothing, and wait."""
        self.spec.enter()
        load_chat(self.spec.base)
        load_model(self.spec.base, 0, torch.device("cpu"))
        self.doing.now("waiting to be needed")
        return whereabouts()

    def train(self, folder: str, limits: Limits) -> Result:
        """The run in this folder, from its newest checkpoint or from its beginning."""
        import ray

        self.doing.now("loading")
        entry = self.spec.enter()
        options = self.spec.config.options

        def elsewhere(method: Any, cast: Any, settings: Any) -> Placed:
            placed = Placed(
                method, cast, settings, limits, size=options.unit, free=options.order == "free", put=ray.put
            )
            with self.lock:
                self.placed = placed
                for one in self.joining:
                    placed.crew.join(*one)
            return placed

        run = prepare(entry, self.spec.config, Folder(Path(folder)), self.spec.task, elsewhere)
        return execute(run, self.relay)

    def news(self, joining: list[Joining]) -> News:
        """Take these actors in, and tell what happened since the last time."""
        with self.lock:
            if self.placed is None:
                self.joining += joining
            else:
                for one in joining:
                    self.placed.crew.join(*one)
        events = [self.relay.events.popleft() for _ in range(len(self.relay.events))]
        if self.placed is None:
            return News(events, [], {}, {}, False, {}, self.doing.told())
        crew = self.placed.crew
        lost, wanted = {loss.name: str(loss) for loss in list(crew.lost)}, crew.wanted()
        return News(events, crew.told(), lost, wanted, crew.filled, crew.whereabouts(), self.doing.told())

    def ping(self) -> tuple[str, float]:
        return self.doing.told()
