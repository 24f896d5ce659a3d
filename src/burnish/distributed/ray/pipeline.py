"""The trainer's side of sampling on Ray: a SampleSource whose samplers and graders are other processes.

In fixed order the schedule is that of run/pipeline.py: when step t begins, the weights are published as step t - 1 left
them, the tasks of step t + lag are drawn and split into units on these weights, and step t learns from the units of
step t. So a run repeats bit for bit, whichever worker has which unit and whichever is lost. In free order the same
units are queued at the same time, but each is started on the newest weights, and a step learns from those that finish
first (distributed/ray/admission.py).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from typing import Any

import torch

from burnish.core.loop import draw_tasks, note_by_learner, through
from burnish.core.method import Method, Phase
from burnish.core.parts import split_score
from burnish.core.pending_step import PartialStep, joined
from burnish.core.sample_ledger import UnitId, UnitRow
from burnish.core.schedules import at
from burnish.core.step import Settings, Step
from burnish.core.types import Clock
from burnish.distributed.ray.admission import chosen, limits_of
from burnish.distributed.ray.arrays import as_array
from burnish.distributed.ray.supervisor import ActorLimits, Proofs, Supervisor
from burnish.distributed.ray.units import (
    Published,
    Unit,
    cut,
    outcome_from_record,
    outcome_to_record,
)
from burnish.distributed.ray.work_queue import SAMPLER, WorkQueue
from burnish.engine.subprocess.probe import NAME as PROBE
from burnish.engine.subprocess.probe import TOLERANCE, Difference, WrongWeights, difference
from burnish.models.build import Models
from burnish.models.snapshot import models_read, moving
from burnish.run.pipeline import SAY_EVERY, first_phase, sampling_parts

_log = logging.getLogger("burnish")
Put = Callable[[object], object]


class RayPipeline:
    """Samples and scores through Ray workers. Stateful: a checkpoint holds finished units that are not learned from
    yet.

    size   tasks per unit
    free   --order free: units use the newest weights, and a step learns from the units that finish first
    put    stores arrays and returns a reference that any process can fetch
    """

    name = "pipeline"

    def __init__(
        self,
        method: Method,
        models: Models,
        settings: Settings,
        limits: ActorLimits,
        *,
        size: int,
        free: bool,
        put: Put,
    ) -> None:
        self.method, self.models, self.settings = method, models, settings
        self.size, self.free, self.put = size, free, put
        self.say: Callable[[str], None] = _log.warning
        graded = [phase.name for phase in method.phases if split_score(phase.score)[0]]
        self.queue = WorkQueue(graded)
        self.supervisor = Supervisor(self.queue, limits, self._prove)
        wanted = models_read(name for part in sampling_parts(method.phases) for name in part.reads)
        self.moving = [m.name for m in models if m.name in wanted and m.role.liveness != "frozen"]
        self.incarnation = uuid.uuid4().hex  # distinguishes weights of two trainers after the same number of steps
        self.drawn: dict[int, list[list[UnitId]]] = {}  # step -> pass -> its units, for steps not learned yet
        self.begun: dict[int, PartialStep] = {}  # the same steps, with the metrics of drawing
        self.proofs: dict[tuple[str, int], Proofs] = {}
        self.proved: dict[tuple[str, int], Difference] = {}

    def __enter__(self) -> RayPipeline:
        self.supervisor.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.supervisor.close()

    def take(self, clock: Clock) -> PartialStep:
        """At the begin of step `clock.step`: publish, queue the steps that are due, and wait for this step's units."""
        first = max(self.drawn) + 1 if self.drawn else clock.step
        due = range(first, min(clock.step + self.settings.lag, clock.of - 1) + 1)
        if due or (self.free and self.queue.waiting[SAMPLER]):
            self._publish(clock.step)
        for number in due:
            self._order(Clock(number, clock.of, clock.seed))
        began = time.perf_counter()
        unit_ids = self._wait_for(clock.step)
        waited = time.perf_counter() - began
        step = self._close(clock, unit_ids)
        step.seconds["waiting"] = waited
        return step

    def state_dict(self) -> dict[str, Any]:
        """Wait for all queued units; the units that are not learned from yet."""
        self._wait_until(lambda: not self.queue.unfinished(), "all queued units to be sampled and scored")
        units = [
            outcome_to_record(self.queue.units[unit_id], made, self.queue.version.get(unit_id, 0))
            for unit_id, made in self.queue.finished.items()
        ]
        if not self.free:
            units.sort(key=lambda unit: unit["id"])  # in fixed order, the order of finishing has no meaning
        drawn = [
            {"begun": self.begun[step].to_record(), "walks": [[list(unit_id) for unit_id in walk] for walk in walks]}
            for step, walks in self.drawn.items()
        ]
        return {"drawn": drawn, "units": units}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for record in state["drawn"]:
            begun = PartialStep.from_record(record["begun"])
            self.begun[begun.step] = begun
            self.drawn[begun.step] = [[UnitId(*unit_id) for unit_id in walk] for walk in record["walks"]]
        for record in state["units"]:
            self.queue.restore(*outcome_from_record(record, Clock(0, 1)))

    # --------------------------------------------------------------------------------------------------------- queueing

    @torch.no_grad()
    def _publish(self, steps: int) -> None:
        """Publish the present weights to the workers, and record their log-probs of the probe for verification."""
        key = (self.incarnation, steps)
        if not self.moving or (self.queue.newest is not None and self.queue.newest.key == key):
            return
        models = {name: self.models[name] for name in self.moving}
        arrays = {name: [as_array(p) for p in moving(m.module)] for name, m in models.items()}
        self.proofs = dict(list(self.proofs.items())[-3 - self.settings.lag :])
        self.proofs[key] = {name: m.proof() for name, m in models.items() if not m.role.outputs}
        self.queue.newest = Published(key, {name: m.version for name, m in models.items()}, self.put(arrays))

    def _order(self, clock: Clock) -> None:
        """Draw the tasks of a step, split them into units, and queue these."""
        phase = first_phase(self.method, clock)
        begun = PartialStep(clock.step, phase.name if phase else "")
        self.drawn[clock.step], self.begun[clock.step] = [], begun
        if phase is None:
            return
        for pass_number in range(round(at(phase.times, clock))):
            now = clock.at(tick=pass_number)
            step = Step(
                now, self.models, self.settings, begun.notes, phase.name, begun.refusals, product=self.method.product
            )
            tasks = draw_tasks(phase, step, begun.seconds)
            parts = cut(tasks, self.size)
            unit_ids = [UnitId(clock.step, pass_number, number) for number in range(len(parts))]
            self.drawn[clock.step].append(unit_ids)
            for unit_id, some in zip(unit_ids, parts, strict=True):
                self.queue.add(Unit(unit_id, phase.name, now, some, None if self.free else self.queue.newest))

    # ---------------------------------------------------------------------------------------------------------- waiting

    def _wait_for(self, step: int) -> list[list[UnitId]]:
        """Wait until the units that a step learns from are finished; return them per pass."""
        if not self.free:
            unit_ids = [unit_id for walk in self.drawn[step] for unit_id in walk]
            what = f"the replies of step {step + 1} to be sampled and scored"
            self._wait_until(lambda: all(unit_id in self.queue.finished for unit_id in unit_ids), what)
            return self.drawn[step]
        taken: list[UnitId] = []

        def ready() -> bool:
            nonlocal taken
            started = {unit_id: self.queue.version.get(unit_id) for unit_id in self.queue.units}
            newest = self.queue.newest.steps if self.queue.newest else step
            room = {s: sum(map(len, walks)) for s, walks in self.drawn.items()}
            chosen_units = chosen(list(self.queue.finished), limits_of(started, newest, self.settings.lag), room, step)
            taken = chosen_units or []
            return chosen_units is not None

        self._wait_until(ready, f"enough replies for step {step + 1} to be sampled and scored")
        return [taken]

    def _wait_until(self, ready: Callable[[], bool], what: str) -> None:
        began = warned_at = time.monotonic()
        with self.queue.changed:
            while not ready():
                if self.supervisor.error is not None:
                    raise self.supervisor.error
                self.queue.changed.wait(1.0)  # with a timeout, in case that the supervisor thread has ended
                if time.monotonic() - warned_at > SAY_EVERY:
                    warned_at = time.monotonic()
                    self.say(f"waiting for {what}: {warned_at - began:.0f} s; {self.supervisor.state()}")
        if self.supervisor.error is not None:
            raise self.supervisor.error

    # ----------------------------------------------------------------------------------------------------------- taking

    def _close(self, clock: Clock, passes: list[list[UnitId]]) -> PartialStep:
        """Join the units of a step; run the stateful parts of score here, in the order of the steps."""
        self.drawn.pop(clock.step)
        whole = self.begun.pop(clock.step)
        for number, unit_ids in enumerate(passes):
            taken = self.queue.remove(unit_ids, clock.step)
            joint = joined([made for made, _ in taken], clock.step, whole.phase)
            phase = next(p for p in self.method.phases if p.name == whole.phase)
            self._finish_score(phase, clock.at(tick=number), joint)
            whole = _with_pass(whole, joint, [row for _, row in taken])
        return whole

    def _finish_score(self, phase: Phase, clock: Clock, joint: PartialStep) -> None:
        _, late = split_score(phase.score)
        sampled = joint.passes[0]
        step = Step(
            clock,
            self.models,
            self.settings,
            joint.notes,
            phase.name,
            joint.refusals,
            sampled.dropped,
            product=self.method.product,
        )
        sampled.groups = through(late, "score", sampled.groups, step, joint.seconds, joint.trail)
        note_by_learner(sampled.groups, step)

    def _prove(self, unit: Unit, made: PartialStep, proofs: Proofs) -> None:
        """Verify that a worker loaded the right weights: its log-probs of the probe must equal the trainer's.

        The difference is added to the metrics once per publish, in the step of the first unit sampled from it.
        """
        weights = unit.weights
        if weights is None:
            return
        here = self.proofs.get(weights.key, {})
        for name in here.keys() & proofs.keys():
            gap = difference(here[name], proofs[name])
            self.proved[weights.key] = gap
            if gap.mean > TOLERANCE["float32"]:
                message = (
                    f"a worker does not run the trained weights of {name!r}: after {weights.steps} steps the log-probs "
                    f"of the probe differ by {gap} (tolerance {TOLERANCE['float32']:g})"
                )
                if self.settings.on_mismatch == "stop":
                    raise WrongWeights(f"{message}; --on-mismatch warn continues regardless")
                self.say(message)
        if unit.fresh and weights.key in self.proved:
            made.notes.add(PROBE, self.proved[weights.key].mean)
            unit.fresh = False


def _with_pass(whole: PartialStep, added: PartialStep, rows: list[UnitRow]) -> PartialStep:
    """A step with one more pass."""
    both = joined([whole, added], whole.step, whole.phase)
    both.trail = [*whole.trail, *added.trail]
    both.passes = [*whole.passes, *added.passes]
    both.units = [*whole.units, *rows]
    return both
