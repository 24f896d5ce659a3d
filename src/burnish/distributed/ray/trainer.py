"""The trainer actor: executes the run, as without Ray, but with samplers and graders in other processes.

It owns the weights, the state of parts, the checkpoints and the run store. The driver requests its news a few times a
second: events for the observer, lost actors, actors to start. The requests also detect a dead or hanging trainer.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from burnish.core.loop import Report
from burnish.core.method import Method
from burnish.core.step import Settings
from burnish.distributed.ray.actors import Handle, Where, tensors_as_bytes, whereabouts
from burnish.distributed.ray.pipeline import RayPipeline
from burnish.distributed.ray.supervisor import ActorLimits
from burnish.distributed.ray.worker import Activity, Spec
from burnish.evals.heldout import Outcome
from burnish.models.build import Models
from burnish.models.load import load_chat, load_model
from burnish.run.folder import Folder
from burnish.run.lock import TRAINER
from burnish.run.observed import ObservedRun
from burnish.run.placement import UNIT
from burnish.run.train import Observer, Result, execute, prepare


class Relay(Observer):
    """An observer that queues the run's events for the driver, as plain values without models."""

    run: ObservedRun

    def __init__(self, doing: Activity) -> None:
        self.doing, self.events = doing, deque[tuple[str, tuple[Any, ...]]]()

    def started(self, run: ObservedRun) -> None:
        self.run = run
        self._tell("started", (run.start, run.about, run.lengths, run.best.state_dict()))
        self.doing.now("measuring before training, or the first step")

    def begun(self) -> None:
        self._tell("begun", ())

    def ended(self, stopped: bool) -> None:
        self._tell("ended", (stopped,))

    def evaluated(self, when: str, outcome: Outcome) -> None:
        self._tell("evaluated", (when, outcome))

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        light = replace(report, groups={}, dropped={}, refusals=[], looks={}, ledger=[], units=[])
        self._tell("stepped", (light, heldout, seconds, self.run.best.state_dict()))
        self.doing.now(f"after step {report.clock.step + 1}")

    def saved(self, path: Path) -> None:
        self._tell("saved", (path,))

    def warned(self, said: str) -> None:
        self._tell("warned", (said,))

    def ordered(self, action: str) -> None:
        self._tell("ordered", (action,))

    def _tell(self, what: str, values: tuple[object, ...]) -> None:
        self.events.append((what, values))


Joining = tuple[str, str, Handle, Where | None]  # name, role, handle, and its process where it is ready


@dataclass
class News:
    """A trainer's answer to the driver.

    events    calls of an observer
    happened  events for the run store
    lost      actors by name, with the reason
    wanted    how many more actors of each role to start
    filled    whether all working actors have been ready once, so that spares may be started
    where     the processes of the actors that are ready
    """

    events: list[tuple[str, tuple[Any, ...]]]
    happened: list[tuple[float, str, str, str]]
    lost: dict[str, str]
    wanted: dict[str, int]
    filled: bool
    where: dict[str, Where]
    doing: tuple[str, float]


class Trainer:
    """The actor. It is ready with everything imported until `train` is called."""

    def __init__(self, name: str, role: str, spec: Spec) -> None:
        self.name, self.spec = name, spec
        self.doing = Activity()
        self.relay = Relay(self.doing)
        self.pipeline: RayPipeline | None = None
        self.joining: list[Joining] = []
        self.lock = threading.Lock()
        tensors_as_bytes()

    def ready(self) -> Where:
        """Load the model once, so that all imports are done, and discard it."""
        self.spec.enter()
        load_chat(self.spec.base, self.spec.config.options.style())
        load_model(self.spec.base, 0, torch.device("cpu"))
        self.doing.now("waiting to be needed")
        return whereabouts()

    def train(self, folder: str, limits: ActorLimits) -> Result:
        """Execute the run in this folder, from its newest checkpoint or from the start."""
        import ray

        self.doing.now("loading")
        entry = self.spec.enter()
        options = self.spec.config.options

        def elsewhere(method: Method, models: Models, settings: Settings) -> RayPipeline:
            pipeline = RayPipeline(
                method, models, settings, limits, size=options.unit or UNIT, free=options.order == "free", put=ray.put
            )
            with self.lock:
                self.pipeline = pipeline
                for actor in self.joining:
                    pipeline.supervisor.join(*actor)
            return pipeline

        run_folder = Folder(Path(folder))
        run_folder.lock(TRAINER)  # waits until the process of a lost trainer is gone, before this one writes
        try:
            spec = self.spec
            run = prepare(entry, spec.config, run_folder, spec.task, elsewhere, spec.rewards)
            return execute(run, self.relay)
        finally:
            run_folder.release()

    def news(self, joining: list[Joining]) -> News:
        """Add these actors; return the news since the last call."""
        with self.lock:
            if self.pipeline is None:
                self.joining += joining
            else:
                for actor in joining:
                    self.pipeline.supervisor.join(*actor)
        events = [self.relay.events.popleft() for _ in range(len(self.relay.events))]
        if self.pipeline is None:
            return News(events, [], {}, {}, False, {}, self.doing.current())
        supervisor = self.pipeline.supervisor
        lost, wanted = {loss.name: str(loss) for loss in list(supervisor.lost)}, supervisor.wanted()
        return News(
            events,
            supervisor.take_events(),
            lost,
            wanted,
            supervisor.filled,
            supervisor.whereabouts(),
            self.doing.current(),
        )

    def ping(self) -> tuple[str, float]:
        return self.doing.current()
