"""Draws and given replies of the next steps, made by threads while the present step learns.

Which tasks a step draws from a dataset depends on its number and the seed alone, and what a given reply is in tokens on
the tokenizer alone. Parts say so themselves (`ahead`). So the result is the same bit for bit, and a checkpoint holds
nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING

from burnish.core.method import Method, Phase
from burnish.core.schedules import at
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group, Task

if TYPE_CHECKING:
    from burnish.models.build import Models

DEPTH = 4  # steps that are made ahead, each by a thread of its own
PATIENCE = 3600.0  # seconds after which a thread that reads and encodes the rows of one step counts as stuck

Place = tuple[str, int, int]  # phase, step, tick


@dataclass
class Prefetched:
    """What has been made of a pass: its tasks, and its groups if the rollout could be made ahead too."""

    tasks: list[Task]
    groups: list[Group] | None = None


@dataclass
class Prefetcher:
    """Makes the passes of the steps that come next. `take` gives each pass once, in the order of the steps."""

    method: Method
    models: Models
    settings: Settings
    steps: int
    seed: int
    _queued: dict[Place, Future[Prefetched]] = field(default_factory=dict)
    _next: int = -1  # the first step that is not queued
    _threads: ThreadPoolExecutor | None = None

    @property
    def phases(self) -> list[Phase]:
        """The phases whose draw can be made ahead."""
        return [phase for phase in self.method.phases if phase.draw.ahead and not phase.draw.state]

    def __enter__(self) -> Prefetcher:
        if self.phases:
            self._threads = ThreadPoolExecutor(DEPTH, "burnish-data")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        self._queued.clear()

    def begin(self, number: int) -> None:
        """A step begins: queue it, if it is the first, and those behind it."""
        if self._threads is None:
            return
        self._next = max(self._next, number)
        while self._next < min(number + 1 + DEPTH, self.steps):
            for phase, clock in self._passes(self._next):
                self._queued[phase.name, clock.step, clock.tick] = self._threads.submit(self._make, phase, clock)
            self._next += 1

    def take(self, phase: Phase, clock: Clock) -> Prefetched | None:
        """What was made of a pass; None where nothing was. An error of the thread is raised here."""
        made = self._queued.pop((phase.name, clock.step, clock.tick), None)
        return None if made is None else made.result(PATIENCE)

    def _passes(self, number: int) -> Iterator[tuple[Phase, Clock]]:
        clock = Clock(number, self.steps, self.seed)
        for phase in self.phases:
            yield from ((phase, clock.at(tick=tick)) for tick in range(round(at(phase.times, clock))))

    def _make(self, phase: Phase, clock: Clock) -> Prefetched:
        step = Step(clock, self.models, self.settings, phase=phase.name, product=self.method.product)
        tasks = phase.draw.call(step)
        rolls = phase.rollout.ahead and not phase.rollout.state
        return Prefetched(tasks, phase.rollout.call(tasks, step) if rolls and tasks else None)
