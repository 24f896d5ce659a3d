"""Sampling ahead: with a lag of K, the replies of step t + K are sampled and scored while step t learns.

The schedule does not depend on thread timing. When step t begins, before any weight changes:

    1. take a snapshot of the weights, as step t - 1 published them;
    2. draw the tasks of step t + K, with the state as step t - 1 left it;
    3. queue rollout and score of step t + K on that snapshot, for a thread that processes one step after the other;
    4. wait for the replies of step t, queued K steps ago; step t learns from them.

The state of draw, select, credit and learn belongs to the learning thread, that of rollout and score to the sampling
thread. A method in which both threads would use the same state is refused. A checkpoint waits until the queue is empty
and includes what was sampled ahead: that takes time but does not change the result.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from burnish.compose.chunked import chunked
from burnish.core.loop import Report, draw_tasks, loop, sample_and_score
from burnish.core.method import Method, Phase
from burnish.core.parts import Stateful, Wired
from burnish.core.pending_step import PartialStep, Sampled, SampleSource
from burnish.core.schedules import at
from burnish.core.state import State
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Task
from burnish.models.build import Models
from burnish.models.snapshot import SnapshotModels, WeightSnapshot

SAY_EVERY = 30.0  # seconds between warnings during a long wait
CLOSE_SECONDS = 5.0  # how long the end of a run waits for the sampling thread
_log = logging.getLogger("burnish")


SamplesElsewhere = Callable[[Method, Models, Settings], SampleSource]


@dataclass
class _Order:
    """Work for the sampling thread: passes of one phase, on these weights."""

    ahead: PartialStep
    phase: Phase
    clock: Clock
    tasks: list[list[Task]]
    weights: WeightSnapshot


class Pipeline:
    """Samples and scores `settings.lag` steps ahead of learning. Stateful: a checkpoint holds what was sampled ahead.

    threaded  whether sampling has its own thread. By default yes on a CPU and with a subprocess engine; if everything
              is on one GPU, sampling and learning alternate, on the same schedule and with the same result
    say       called with a warning every SAY_EVERY seconds of waiting
    """

    name = "pipeline"

    def __init__(self, method: Method, models: Models, settings: Settings, *, threaded: bool | None = None) -> None:
        self.method, self.models, self.settings = method, models, settings
        reads = {name for part in sampling_parts(method.phases) for name in part.reads}
        concurrent = models.ahead is not None or all(m.device.type == "cpu" for m in models)
        self.threaded = concurrent if threaded is None else threaded
        ranks = models.ranks.for_thread() if self.threaded else models.ranks
        self.snapshot = SnapshotModels(models, reads, ranks)
        self.say: Callable[[str], None] = _log.warning
        self._coming: deque[PartialStep] = deque()  # in the order of their steps, queued or finished
        self._orders: deque[_Order] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._closed = False

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        """Discard the queue; wait at most CLOSE_SECONDS for a rollout in progress."""
        with self._changed:
            self._closed = True
            self._orders.clear()
            self._changed.notify_all()
        self.snapshot.end()
        if self._thread is not None:
            self._thread.join(CLOSE_SECONDS)

    def take(self, clock: Clock) -> PartialStep:
        """At the begin of step `clock.step`: queue the steps that are due, and wait for the replies of this step."""
        self._raise()
        first = self._coming[-1].step + 1 if self._coming else clock.step
        for number in range(first, min(clock.step + self.settings.lag, clock.of - 1) + 1):
            self._order(Clock(number, clock.of, clock.seed))
        began = time.perf_counter()
        sampled = self._coming[0]
        assert sampled.step == clock.step, f"step {clock.step} begins, but the replies are for step {sampled.step}"
        self._wait_for(sampled)
        self._coming.popleft()
        sampled.seconds["waiting"] = time.perf_counter() - began
        return sampled

    def state_dict(self) -> State:
        """Wait for everything that is queued; what was sampled ahead."""
        for ahead in self._coming:
            self._wait_for(ahead)
        return {"coming": [ahead.to_record() for ahead in self._coming]}

    def load_state_dict(self, state: State) -> None:
        self._coming = deque(PartialStep.from_record(record) for record in state["coming"])

    def _order(self, clock: Clock) -> None:
        """Draw the tasks of a step, and queue its rollout and score on a snapshot of the present weights."""
        ahead = PartialStep(clock.step)
        self._coming.append(ahead)
        phase = first_phase(self.method, clock)
        if phase is None:
            return
        ahead.phase, ahead.done = phase.name, False
        tasks = [
            draw_tasks(phase, self._step(ahead, clock.at(tick=tick), self.models), ahead.seconds)
            for tick in range(round(at(phase.times, clock)))
        ]
        with self._changed:
            self._orders.append(_Order(ahead, phase, clock, tasks, self.snapshot.take()))
            self._changed.notify_all()
        if self.threaded and self._thread is None:
            self._thread = threading.Thread(target=self._work, name="burnish-sampling", daemon=True)
            self._thread.start()

    def _wait_for(self, ahead: PartialStep) -> None:
        if not self.threaded:
            while not ahead.done:
                self._fill(self._orders.popleft())
            return
        began = time.monotonic()
        with self._changed:
            while not ahead.done and self._error is None:
                if not self._changed.wait(SAY_EVERY):
                    waited = time.monotonic() - began
                    self.say(
                        f"waiting for the replies of step {ahead.step + 1} to be sampled and scored: {waited:.0f} s"
                    )
        self._raise()

    def _raise(self) -> None:
        """Raise the error of the sampling thread, with its traceback."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._orders and not self._closed:
                    self._changed.wait(SAY_EVERY)  # idle: a new order or the end of the run notifies it
                if self._closed:
                    return
                order = self._orders.popleft()
            try:
                self._fill(order)
            except BaseException as error:  # noqa: BLE001 - `_raise` raises it in the learning thread
                self._error = error
            with self._changed:
                self._changed.notify_all()
            if self._error is not None:
                return

    def _fill(self, order: _Order) -> None:
        ahead, models = order.ahead, self.snapshot.cast_of(order.weights, order.ahead.notes)
        for tick, tasks in enumerate(order.tasks):
            step = self._step(ahead, order.clock.at(tick=tick), models)
            groups = sample_and_score(order.phase, tasks, step, ahead.seconds, ahead.trail)
            ahead.passes.append(Sampled(groups, step.dropped))
        ahead.done = True

    def _step(self, ahead: PartialStep, clock: Clock, models: Models) -> Step:
        return Step(clock, models, self.settings, ahead.notes, ahead.phase, ahead.refusals, product=self.method.product)


def first_phase(method: Method, clock: Clock) -> Phase | None:
    """The first active phase of a step, which is the one that is sampled ahead; None if no phase is active."""
    return next((phase for phase in method.phases if round(at(phase.times, clock)) > 0), None)


def require_pipelined(method: Method, lag: int, steps: int) -> None:
    """Raise ValueError if sampling ahead and learning would use the same state."""
    if not lag:
        return
    for draw in (phase.draw for phase in method.phases):
        if any(name.startswith("model:") for name in draw.reads):
            raise ValueError(
                f"{method.name} cannot sample ahead of learning (--lag {lag}): its draw ({draw.name}) asks a model for "
                "prompts after each step; leave out --lag"
            )
    placements = [placed for phase in method.phases for placed in phase.parts()]
    learning = {
        id(item) for placed in placements if placed.stage not in ("rollout", "score") for item in placed.part.state
    }
    ahead: dict[str, Phase] = {}
    later: dict[str, Phase] = {}  # phases that run after the first one of a step, in the learning thread
    for number in range(steps):
        clock = Clock(number, steps)
        active = {phase.name: phase for phase in method.phases if round(at(phase.times, clock)) > 0}
        first = next(iter(active), None)
        for name, phase in active.items():
            (ahead if name == first else later)[name] = phase
    learning |= {id(item) for item in _states(later.values())}
    for item in _states(ahead.values()):
        if id(item) in learning:
            raise ValueError(
                f"{method.name} cannot sample ahead of learning (--lag {lag}): its state {item.name!r} is changed by "
                "learning and needed for sampling in the same step; leave out --lag"
            )


def uncorrected(method: Method) -> bool:
    """Whether the method samples from its policy but uses no behaviour log-probs (mu), so no importance weights."""
    parts = [placed.part for phase in method.phases if phase.learn.terms for placed in phase.parts()]
    samples = any(name.startswith("model:") and name.endswith(".generate") for part in parts for name in part.reads)
    return samples and not any(name.startswith("mu:") for part in parts for name in part.reads)


def sampling_parts(phases: Iterable[Phase]) -> list[Wired]:
    """The parts of the rollout and score stages of these phases."""
    return [placed.part for phase in phases for placed in phase.parts() if placed.stage in ("rollout", "score")]


def _states(phases: Iterable[Phase]) -> list[Stateful]:
    return [item for part in sampling_parts(phases) for item in part.state]


def loop_as_set(method: Method, models: Models, settings: Settings, **how: Any) -> Iterator[Report]:
    """`loop` with the method chunked (settings.chunk) and a Pipeline (settings.lag), unless `how` has one."""
    if settings.chunk:
        method = chunked(method)
    if settings.lag and how.get("pipeline") is None:
        how["pipeline"] = Pipeline(method, models, settings)
    return loop(method, models, settings, **how)
