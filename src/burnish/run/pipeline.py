"""Sampling ahead: with a lag of K, the replies of step t + K are sampled and scored while step t learns.

The schedule is fixed, whatever the threads do. When step t begins, and before it moves any weight:

    1. the weights are copied, as step t - 1 published them;
    2. the tasks of step t + K are drawn, from memories as step t - 1 left them;
    3. rollout and score of step t + K are queued on that copy, for a thread that takes one step after the other;
    4. the replies of step t, queued K steps ago, are waited for, and step t learns from them.

Draw, select, credit, learn and every memory they have belong to the learning thread; memories of rollout and score belong
to the sampling thread. A method in which both sides would touch one memory is refused. A checkpoint waits until the queue is
empty and holds what was sampled: that costs time and changes nothing.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from burnish.cast.behind import Behind, Weights
from burnish.cast.stage import Cast
from burnish.method import Method, Phase
from burnish.nouns import Clock, Group, Task
from burnish.parts import Stateful, Wired
from burnish.refusal import Refusal
from burnish.run.records import group_from_record, group_to_record
from burnish.schedules import at
from burnish.stages import Sampled, Seconds, Trail, draw_tasks, sample_and_score
from burnish.step import Dropped, Notes, Settings, Step

if TYPE_CHECKING:
    from burnish.placed.ledger import Settled, UnitRow

SAY_EVERY = 30.0  # seconds of waiting after which it is said what is waited for, again and again
GOODBYE = 5.0  # seconds that the end of a run waits for the sampling thread
_log = logging.getLogger("burnish")


@dataclass
class Ahead:
    """One step as far as it has been walked: `walks` holds, walk by walk, what the phase `phase` sampled and scored."""

    step: int
    phase: str = ""
    walks: list[Sampled] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    seconds: Seconds = field(default_factory=dict)
    trail: Trail = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    done: bool = True
    ledger: list[Settled] = field(default_factory=list)
    units: list[UnitRow] = field(default_factory=list)

    def to_record(self) -> dict[str, Any]:
        """Plain values; seconds are no part of what a rerun repeats."""
        refused = [(r.phase, r.why, [group_to_record(group) for group in r.groups]) for r in self.refusals]
        walks = [_walk_to_record(walk) for walk in self.walks]
        found = {"step": self.step, "phase": self.phase, "walks": walks, "notes": self.notes.state_dict()}
        return {**found, "trail": self.trail, "refusals": refused}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Ahead:
        """What `to_record` wrote down."""
        walks = [_walk_from_record(walk) for walk in record["walks"]]
        found = cls(record["step"], record["phase"], walks, trail=[(name, n) for name, n in record["trail"]])
        found.notes.load_state_dict(record["notes"])
        found.refusals += [
            Refusal(phase, why, [group_from_record(group) for group in groups])
            for phase, why, groups in record["refusals"]
        ]
        return found


class SamplesAhead(Protocol):
    """What a run takes its replies from, where they are not sampled within the step itself; a checkpoint holds its state.

    say: called with what people should hear of, e.g. what has been waited for.
    """

    name: str
    say: Callable[[str], None]

    def __enter__(self) -> Any: ...

    def __exit__(self, *_: object) -> None: ...

    def take(self, clock: Clock) -> Ahead: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


SamplesElsewhere = Callable[[Method, Cast, Settings], SamplesAhead]


@dataclass
class _Order:
    """What the sampling thread is asked for: walks of one phase, on these weights."""

    ahead: Ahead
    phase: Phase
    clock: Clock
    tasks: list[list[Task]]
    weights: Weights


class Pipeline:
    """Samples and scores `settings.lag` steps ahead of learning. Stateful: a checkpoint holds what was sampled.

    threaded: whether sampling has a thread of its own. By default on a CPU, and where another process samples; where all is on a
    GPU the two take turns there, on the same schedule and with the same result. say: called with what has been waited for, every half minute.
    """

    name = "pipeline"

    def __init__(self, method: Method, cast: Cast, settings: Settings, *, threaded: bool | None = None) -> None:
        self.method, self.cast, self.settings = method, cast, settings
        reads = {name for part in sampling_parts(method.phases) for name in part.reads}
        self.behind = Behind(cast, reads)
        beside = cast.ahead is not None or all(m.device.type == "cpu" for m in cast)
        self.threaded = beside if threaded is None else threaded
        self.say: Callable[[str], None] = _log.warning
        self._coming: deque[Ahead] = deque()  # in the order of their steps, queued or finished
        self._orders: deque[_Order] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._closed = False

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        """What is queued is forgotten; a rollout under way is not waited for longer than a moment."""
        with self._changed:
            self._closed = True
            self._orders.clear()
            self._changed.notify_all()
        self.behind.end()
        if self._thread is not None:
            self._thread.join(GOODBYE)

    def take(self, clock: Clock) -> Ahead:
        """Step `clock.step` begins: order what is due by now, and wait for what this step learns from."""
        self._raise()
        first = self._coming[-1].step + 1 if self._coming else clock.step
        for number in range(first, min(clock.step + self.settings.lag, clock.of - 1) + 1):
            self._order(Clock(number, clock.of, clock.seed))
        began = time.perf_counter()
        found = self._coming[0]
        assert found.step == clock.step, f"step {clock.step} begins, but what was sampled is for step {found.step}"
        self._wait_for(found)
        self._coming.popleft()
        found.seconds["waiting"] = time.perf_counter() - began
        return found

    def state_dict(self) -> dict[str, Any]:
        """What was sampled ahead, once all that was ordered is there."""
        for ahead in self._coming:
            self._wait_for(ahead)
        return {"coming": [ahead.to_record() for ahead in self._coming]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._coming = deque(Ahead.from_record(record) for record in state["coming"])

    def _order(self, clock: Clock) -> None:
        """Draw the tasks of a step, and queue its rollout and score on the weights as they are now."""
        ahead = Ahead(clock.step)
        self._coming.append(ahead)
        phase = first_phase(self.method, clock)
        if phase is None:
            return
        ahead.phase, ahead.done = phase.name, False
        tasks = [
            draw_tasks(phase, self._step(ahead, clock.at(tick=tick), self.cast), ahead.seconds)
            for tick in range(round(at(phase.times, clock)))
        ]
        with self._changed:
            self._orders.append(_Order(ahead, phase, clock, tasks, self.behind.take()))
            self._changed.notify_all()
        if self.threaded and self._thread is None:
            self._thread = threading.Thread(target=self._work, name="burnish-sampling", daemon=True)
            self._thread.start()

    def _wait_for(self, ahead: Ahead) -> None:
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
        """What went wrong in the sampling thread, with its own traceback."""
        if self._error is not None:
            raise self._error

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._orders and not self._closed:
                    self._changed.wait(SAY_EVERY)  # an idle thread: whoever orders or closes wakes it
                if self._closed:
                    return
                order = self._orders.popleft()
            try:
                self._fill(order)
            except BaseException as error:  # noqa: BLE001 - it is raised again where the run can hear it
                self._error = error
            with self._changed:
                self._changed.notify_all()
            if self._error is not None:
                return

    def _fill(self, order: _Order) -> None:
        ahead, cast = order.ahead, self.behind.cast_of(order.weights, order.ahead.notes)
        for tick, tasks in enumerate(order.tasks):
            step = self._step(ahead, order.clock.at(tick=tick), cast)
            groups = sample_and_score(order.phase, tasks, step, ahead.seconds, ahead.trail)
            ahead.walks.append(Sampled(groups, step.dropped))
        ahead.done = True

    def _step(self, ahead: Ahead, clock: Clock, cast: Cast) -> Step:
        return Step(clock, cast, self.settings, ahead.notes, ahead.phase, ahead.refusals)


def _walk_to_record(walk: Sampled) -> dict[str, Any]:
    dropped = [(group_to_record(Group(one.task, [one.trace])), one.part) for one in walk.dropped]
    return {"groups": [group_to_record(group) for group in walk.groups], "dropped": dropped}


def _walk_from_record(record: dict[str, Any]) -> Sampled:
    alone = [(group_from_record(group), part) for group, part in record["dropped"]]
    dropped = [Dropped(group.task, group.traces[0], part) for group, part in alone]
    return Sampled([group_from_record(group) for group in record["groups"]], dropped)


def first_phase(method: Method, clock: Clock) -> Phase | None:
    """The phase that a step begins with: the one that is sampled ahead. Later phases of a step see what it left."""
    return next((phase for phase in method.phases if round(at(phase.times, clock)) > 0), None)


def require_pipelined(method: Method, lag: int, steps: int) -> None:
    """Raises ValueError where sampling and learning would both touch one memory."""
    if not lag:
        return
    learning = {id(item) for phase in method.phases for room in phase.rooms() if room.room not in ("rollout", "score")
                for item in room.part.state}  # fmt: skip
    ahead: dict[str, Phase] = {}
    beside: dict[str, Phase] = {}
    for number in range(steps):
        clock = Clock(number, steps)
        walked = {phase.name: phase for phase in method.phases if round(at(phase.times, clock)) > 0}
        first = next(iter(walked), None)
        for name, phase in walked.items():
            (ahead if name == first else beside)[name] = phase
    learning |= {id(item) for item in _memories(beside.values())}
    for item in _memories(ahead.values()):
        if id(item) in learning:
            raise ValueError(
                f"{method.name} cannot sample ahead of learning (--lag {lag}): its memory {item.name!r} is changed by learning "
                "and needed for sampling in the same step; leave out --lag"
            )


def uncorrected(method: Method) -> bool:
    """Whether the method samples from its policy, and never asks how likely those replies were when they were sampled."""
    wired = [room.part for phase in method.phases if phase.learn.terms for room in phase.rooms()]
    samples = any(name.startswith("cast:") and name.endswith(".generate") for part in wired for name in part.reads)
    return samples and not any(name.startswith("mu:") for part in wired for name in part.reads)


def sampling_parts(phases: Iterable[Phase]) -> list[Wired]:
    """What stands in rollout and score of these phases."""
    return [room.part for phase in phases for room in phase.rooms() if room.room in ("rollout", "score")]


def _memories(phases: Iterable[Phase]) -> list[Stateful]:
    return [item for part in sampling_parts(phases) for item in part.state]
