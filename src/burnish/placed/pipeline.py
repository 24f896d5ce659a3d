"""Replies that samplers and graders make in other processes: the trainer's end of a run on Ray.

In fixed order the schedule is that of run/pipeline.py: when step t begins, the weights are published as step t - 1 left them,
the tasks of step t + lag are drawn and cut into units on these weights, and step t learns from the units of step t. So a run
comes out the same, bit for bit, whoever worked and whoever was lost. In free order the same units are admitted at the same time,
but each is started on the newest weights, and a step learns from those that are finished first (placed/choose.py).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from typing import Any

import torch

from burnish.cast.apart.probe import NAME as PROBE
from burnish.cast.apart.probe import TOLERANCE, Difference, WrongWeights, difference
from burnish.cast.behind import members_read, moving
from burnish.cast.stage import Cast
from burnish.method import Method, Phase
from burnish.nouns import Clock
from burnish.placed.choose import chosen, limits_of
from burnish.placed.crew import Crew, Limits, Proofs
from burnish.placed.desk import SAMPLER, Desk
from burnish.placed.ledger import UnitId, UnitRow
from burnish.placed.units import Published, Unit, cut, joined, outcome_from_record, outcome_to_record, split_score
from burnish.run.pipeline import SAY_EVERY, Ahead, first_phase, sampling_parts
from burnish.schedules import at
from burnish.stages import draw_tasks, note_samples, through
from burnish.step import Settings, Step

_log = logging.getLogger("burnish")
Put = Callable[[Any], Any]


class Placed:
    """Samples and scores through a crew. Stateful: a checkpoint holds the units that are finished and not learned.

    size   tasks in a unit;  free   whether the newest weights and the first finished units are taken
    put    makes a reference of arrays that any process can fetch
    """

    name = "pipeline"

    def __init__(
        self, method: Method, cast: Cast, settings: Settings, limits: Limits, *, size: int, free: bool, put: Put
    ) -> None:
        self.method, self.cast, self.settings, self.size, self.free, self.put = method, cast, settings, size, free, put
        self.say: Callable[[str], None] = _log.warning
        graded = [phase.name for phase in method.phases if split_score(phase.score)[0]]
        self.desk = Desk(graded)
        self.crew = Crew(self.desk, limits, self._prove)
        wanted = members_read(name for part in sampling_parts(method.phases) for name in part.reads)
        self.moving = [m.name for m in cast if m.name in wanted and m.role.liveness != "frozen"]
        self.incarnation = uuid.uuid4().hex  # weights of another trainer, even after as many steps, are other weights
        self.drawn: dict[int, list[list[UnitId]]] = {}  # step -> walk -> its units, of steps that are not learned yet
        self.begun: dict[int, Ahead] = {}  # the same steps, with what drawing noted
        self.proofs: dict[tuple[str, int], Proofs] = {}
        self.proved: dict[tuple[str, int], Difference] = {}

    def __enter__(self) -> Placed:
        self.crew.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.crew.close()

    def take(self, clock: Clock) -> Ahead:
        """Step `clock.step` begins: publish, admit what is due by now, and wait for what this step learns from."""
        first = max(self.drawn) + 1 if self.drawn else clock.step
        due = range(first, min(clock.step + self.settings.lag, clock.of - 1) + 1)
        if due or (self.free and self.desk.waiting[SAMPLER]):
            self._publish(clock.step)
        for number in due:
            self._order(Clock(number, clock.of, clock.seed))
        began = time.perf_counter()
        places = self._wait_for(clock.step)
        waited = time.perf_counter() - began
        found = self._close(clock, places)
        found.seconds["waiting"] = waited
        return found

    def state_dict(self) -> dict[str, Any]:
        """What was sampled ahead, once all that was asked for is there."""
        self._wait_until(lambda: not self.desk.open(), "all that was asked for to be sampled and scored")
        units = [
            outcome_to_record(self.desk.units[place], made, self.desk.version.get(place, 0))
            for place, made in self.desk.finished.items()
        ]
        if not self.free:
            units.sort(key=lambda unit: unit["id"])  # the order in which they were finished means nothing then
        drawn = [
            {"begun": self.begun[step].to_record(), "walks": [[list(place) for place in walk] for walk in walks]}
            for step, walks in self.drawn.items()
        ]
        return {"drawn": drawn, "units": units}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for record in state["drawn"]:
            begun = Ahead.from_record(record["begun"])
            self.begun[begun.step] = begun
            self.drawn[begun.step] = [[UnitId(*place) for place in walk] for walk in record["walks"]]
        for record in state["units"]:
            self.desk.restored(*outcome_from_record(record, Clock(0, 1)))

    # ------------------------------------------------------------------------------------------------------------ asking

    @torch.no_grad()
    def _publish(self, steps: int) -> None:
        """The weights as they are now, for whoever samples from now on; with what a probe says of them here."""
        key = (self.incarnation, steps)
        if not self.moving or (self.desk.newest is not None and self.desk.newest.key == key):
            return
        members = {name: self.cast[name] for name in self.moving}
        arrays = {name: [p.detach().cpu().numpy() for p in moving(m.model)] for name, m in members.items()}
        self.proofs = dict(list(self.proofs.items())[-3 - self.settings.lag :])
        self.proofs[key] = {name: m.proof() for name, m in members.items() if not m.role.outputs}
        self.desk.newest = Published(key, {name: m.version for name, m in members.items()}, self.put(arrays))

    def _order(self, clock: Clock) -> None:
        """Draw the tasks of a step, cut them into units, and ask for them."""
        phase = first_phase(self.method, clock)
        begun = Ahead(clock.step, phase.name if phase else "")
        self.drawn[clock.step], self.begun[clock.step] = [], begun
        if phase is None:
            return
        for walk in range(round(at(phase.times, clock))):
            now = clock.at(tick=walk)
            step = Step(now, self.cast, self.settings, begun.notes, phase.name, begun.refusals)
            tasks = draw_tasks(phase, step, begun.seconds)
            parts = cut(tasks, self.size)
            places = [UnitId(clock.step, walk, number) for number in range(len(parts))]
            self.drawn[clock.step].append(places)
            for place, some in zip(places, parts, strict=True):
                self.desk.ask(Unit(place, phase.name, now, some, None if self.free else self.desk.newest))

    # ----------------------------------------------------------------------------------------------------------- waiting

    def _wait_for(self, step: int) -> list[list[UnitId]]:
        """The units that a step learns from, walk by walk, when all of them are finished."""
        if not self.free:
            mine = [place for walk in self.drawn[step] for place in walk]
            what = f"the replies of step {step + 1} to be sampled and scored"
            self._wait_until(lambda: all(place in self.desk.finished for place in mine), what)
            return self.drawn[step]
        found: list[UnitId] = []

        def ready() -> bool:
            nonlocal found
            started = {place: self.desk.version.get(place) for place in self.desk.units}
            newest = self.desk.newest.steps if self.desk.newest else step
            room = {s: sum(map(len, walks)) for s, walks in self.drawn.items()}
            some = chosen(list(self.desk.finished), limits_of(started, newest, self.settings.lag), room, step)
            found = some or []
            return some is not None

        self._wait_until(ready, f"enough replies for step {step + 1} to be sampled and scored")
        return [found]

    def _wait_until(self, ready: Callable[[], bool], what: str) -> None:
        began = said = time.monotonic()
        with self.desk.changed:
            while not ready():
                if self.crew.error is not None:
                    raise self.crew.error
                self.desk.changed.wait(1.0)  # in case that nobody notifies any more; who is lost is the crew's business
                if time.monotonic() - said > SAY_EVERY:
                    said = time.monotonic()
                    self.say(f"waiting for {what}: {said - began:.0f} s; {self.crew.state()}")
        if self.crew.error is not None:
            raise self.crew.error

    # ------------------------------------------------------------------------------------------------------------ taking

    def _close(self, clock: Clock, walks: list[list[UnitId]]) -> Ahead:
        """The units of a step as one: what is left of score is done here, where its memories are, in the order of the steps."""
        self.drawn.pop(clock.step)
        whole = self.begun.pop(clock.step)
        for number, places in enumerate(walks):
            taken = self.desk.remove(places, clock.step)
            found = joined([made for made, _ in taken], clock.step, whole.phase)
            phase = next(p for p in self.method.phases if p.name == whole.phase)
            self._finish_score(phase, clock.at(tick=number), found)
            whole = _with_walk(whole, found, [row for _, row in taken])
        return whole

    def _finish_score(self, phase: Phase, clock: Clock, found: Ahead) -> None:
        _, late = split_score(phase.score)
        walk = found.walks[0]
        step = Step(clock, self.cast, self.settings, found.notes, phase.name, found.refusals, walk.dropped)
        walk.groups = through(late, "score", walk.groups, step, found.seconds, found.trail)
        note_samples(walk.groups, found.notes)

    def _prove(self, unit: Unit, made: Ahead, proofs: Proofs) -> None:
        """A worker has loaded weights: its log-probs of the probe must be those that they had here.

        The difference is noted once for each publish, in the step of the unit that was first sampled from it.
        """
        weights = unit.weights
        if weights is None:
            return
        here = self.proofs.get(weights.key, {})
        for name in here.keys() & proofs.keys():
            found = difference(here[name], proofs[name])
            self.proved[weights.key] = found
            if found.mean > TOLERANCE["float32"]:
                said = (
                    f"a worker does not run the trained weights of {name!r}: after {weights.steps} steps the log-probs of the "
                    f"probe differ by {found} (tolerance {TOLERANCE['float32']:g})"
                )
                if self.settings.on_mismatch == "stop":
                    raise WrongWeights(f"{said}; --on-mismatch warn goes on regardless")
                self.say(said)
        if unit.fresh and weights.key in self.proved:
            made.notes.add(PROBE, self.proved[weights.key].mean)
            unit.fresh = False


def _with_walk(whole: Ahead, one: Ahead, rows: list[UnitRow]) -> Ahead:
    """A step with one more walk."""
    both = joined([whole, one], whole.step, whole.phase)
    both.trail = [*whole.trail, *one.trail]
    both.walks = [*whole.walks, *one.walks]
    both.units = [*whole.units, *rows]
    return both
