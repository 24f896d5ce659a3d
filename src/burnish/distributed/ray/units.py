"""Units of work: a few tasks of one pass, sampled as one batch and scored as one batch.

How a pass is split into units depends only on the settings, not on which workers are alive. So the result of a unit is
the same, bit for bit, whichever worker computes it and however often it is assigned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from burnish.core.pending_step import PartialStep, Sampled
from burnish.core.sample_ledger import UnitId, births, born_from_record, born_to_record
from burnish.core.types import Clock, Task


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


def unit_outcome(unit: Unit) -> PartialStep:
    """An empty outcome of a unit: one pass without groups."""
    return PartialStep(unit.id.drawn, unit.phase, [Sampled([])])


def note_births(unit: Unit, made: PartialStep) -> None:
    """Record the samples of a unit in its outcome, right after rollout."""
    made.passes[0].born = births(unit.id, made.passes[0].groups)


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
