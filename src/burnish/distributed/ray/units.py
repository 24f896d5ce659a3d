"""Units of work: a few tasks of one pass, sampled as one batch and scored as one batch.

How a pass is split into units depends only on the settings, not on which workers are alive. So the result of a unit is
the same, bit for bit, whichever worker computes it and however often it is assigned.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from burnish.ledger import UnitId, births, born_from_record, born_to_record
from burnish.parts import Part
from burnish.sampled import PartialStep, Sampled, Trail
from burnish.types import Clock, Task


@dataclass(frozen=True)
class Published:
    """Published weights.

    key   (the trainer's incarnation, steps learned): identifies the weights that a worker has loaded
    ref   Ray object reference to {model: [arrays]}
    """

    key: tuple[str, int]
    versions: dict[str, int]
    ref: Any = field(repr=False, default=None)

    @property
    def steps(self) -> int:
        return self.key[1]


@dataclass
class Unit:
    """A unit of work.

    weights  to sample from; None: the newest when the unit is assigned (--order free)
    fresh    the first unit of its weights: the metrics of its step include the check of these weights
    """

    id: UnitId
    phase: str
    clock: Clock
    tasks: list[Task]
    weights: Published | None = None
    fresh: bool = False


def cut(tasks: Sequence[Task], size: int) -> list[list[Task]]:
    """Split into consecutive lists of `size` tasks; the last one may be shorter."""
    return [list(tasks[start : start + size]) for start in range(0, len(tasks), size)]


def split_score(score: Iterable[Part]) -> tuple[list[Part], list[Part]]:
    """The parts of score that any grader can run, and those for the trainer: from the first part with state on."""
    parts = list(score)
    first = next((i for i, part in enumerate(parts) if part.state), len(parts))
    return parts[:first], parts[first:]


def unit_outcome(unit: Unit) -> PartialStep:
    """An empty outcome of a unit: one pass without groups."""
    return PartialStep(unit.id.drawn, unit.phase, [Sampled([])])


def note_births(unit: Unit, made: PartialStep) -> None:
    """Record the samples of a unit in its outcome, right after rollout."""
    made.passes[0].born = births(unit.id, made.passes[0].groups)


def joined(outcomes: Sequence[PartialStep], step: int, phase: str) -> PartialStep:
    """Join the outcomes of the units of one pass in the given order, as if they had been one batch."""
    joint = PartialStep(step, phase, [Sampled([])])
    sampled = joint.passes[0]
    for outcome in outcomes:
        for sampled_unit in outcome.passes:
            sampled.groups += sampled_unit.groups
            sampled.dropped += sampled_unit.dropped
            sampled.born += sampled_unit.born
        _add_notes(joint, outcome)
        for stage, seconds in outcome.seconds.items():
            joint.seconds[stage] = joint.seconds.get(stage, 0.0) + seconds
        joint.trail = _added(joint.trail, outcome.trail)
        joint.refusals += outcome.refusals
    return joint


def _add_notes(joint: PartialStep, outcome: PartialStep) -> None:
    state = outcome.notes.state_dict()
    for name, total in state["sums"].items():
        joint.notes.add(name, total, state["weights"][name])
    for name, total in state["totals"].items():
        joint.notes.count(name, int(total))


def _added(one: Trail, other: Trail) -> Trail:
    """The sum of the trails of two units of one phase: trace counts per part.

    A rejected unit's trail may be shorter.
    """
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    return [(name, n + (shorter[i][1] if i < len(shorter) else 0)) for i, (name, n) in enumerate(longer)]


def outcome_to_record(unit: Unit, made: PartialStep, version: int) -> dict[str, Any]:
    """A finished unit as plain values, for a checkpoint."""
    head = {"id": list(unit.id), "phase": unit.phase, "tasks": len(unit.tasks), "version": version}
    return {**head, "made": made.to_record(), "born": born_to_record(made.passes[0])}


def outcome_from_record(record: dict[str, Any], clock: Clock) -> tuple[Unit, PartialStep, int]:
    """The inverse of `outcome_to_record`.

    Only the number of tasks is restored, because the tasks are not needed again.
    """
    made = PartialStep.from_record(record["made"])
    made.passes[0].born = born_from_record(record["born"], made.passes[0])
    unit_id = UnitId(*record["id"])
    drawn = replace(clock, step=unit_id.drawn, tick=unit_id.walk)
    unit = Unit(unit_id, record["phase"], drawn, [Task("done", "", {}, "")] * record["tasks"])
    return unit, made, record["version"]
