"""Work in units: some whole tasks of a walk, sampled as one batch of their own and scored as one batch of their own.

How a walk is cut depends on the settings alone, never on who is alive. So what comes out of a unit is the same, bit for bit,
whoever works on it and however often it is given out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from burnish.nouns import Clock, Task
from burnish.parts import Part
from burnish.placed.ledger import UnitId, births, born_from_record, born_to_record
from burnish.run.pipeline import Ahead
from burnish.stages import Sampled, Trail


@dataclass(frozen=True)
class Published:
    """Weights that were published: who published them after how many steps, and where to get them.

    key   (the trainer's incarnation, steps learned): a worker that has this key loaded has these weights
    ref   an object reference of Ray to {member: [arrays]}
    """

    key: tuple[str, int]
    versions: dict[str, int]
    ref: Any = field(repr=False, default=None)

    @property
    def steps(self) -> int:
        return self.key[1]


@dataclass
class Unit:
    """A unit of work. weights: those that it must be sampled from; None where the newest will do, when it is given out.

    fresh: the first unit of its weights, in whose step the proof of these weights is noted.
    """

    id: UnitId
    phase: str
    clock: Clock
    tasks: list[Task]
    weights: Published | None = None
    fresh: bool = False


def cut(tasks: Sequence[Task], size: int) -> list[list[Task]]:
    """Consecutive runs of `size` tasks; the last one has what is left."""
    return [list(tasks[start : start + size]) for start in range(0, len(tasks), size)]


def split_score(score: Iterable[Part]) -> tuple[list[Part], list[Part]]:
    """The parts of score that any grader can do, and those that need one place: the first with a memory and all after it."""
    parts = list(score)
    first = next((i for i, part in enumerate(parts) if part.state), len(parts))
    return parts[:first], parts[first:]


def unit_outcome(unit: Unit) -> Ahead:
    """An empty outcome of a unit, to be filled: one walk."""
    return Ahead(unit.id.drawn, unit.phase, [Sampled([])])


def note_births(unit: Unit, made: Ahead) -> None:
    """Right after rollout: write down which samples there are."""
    made.walks[0].born = births(unit.id, made.walks[0].groups)


def joined(outcomes: Sequence[Ahead], step: int, phase: str) -> Ahead:
    """The outcomes of the units of one walk, put together in the order given: as if one batch had gone through the rooms."""
    found = Ahead(step, phase, [Sampled([])])
    walk = found.walks[0]
    for one in outcomes:
        for mine in one.walks:
            walk.groups += mine.groups
            walk.dropped += mine.dropped
            walk.born += mine.born
        _add_notes(found, one)
        for room, seconds in one.seconds.items():
            found.seconds[room] = found.seconds.get(room, 0.0) + seconds
        found.trail = _added(found.trail, one.trail)
        found.refusals += one.refusals
    return found


def _add_notes(found: Ahead, one: Ahead) -> None:
    state = one.notes.state_dict()
    for name, total in state["sums"].items():
        found.notes.add(name, total, state["weights"][name])
    for name, total in state["totals"].items():
        found.notes.count(name, int(total))


def _added(one: Trail, other: Trail) -> Trail:
    """Trails of two units of one phase: the same parts, their traces counted together. A refused unit's may be shorter."""
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    return [(name, n + (shorter[i][1] if i < len(shorter) else 0)) for i, (name, n) in enumerate(longer)]


def outcome_to_record(unit: Unit, made: Ahead, version: int) -> dict[str, Any]:
    """A finished unit as plain values, for a checkpoint."""
    head = {"id": list(unit.id), "phase": unit.phase, "tasks": len(unit.tasks), "version": version}
    return {**head, "made": made.to_record(), "born": born_to_record(made.walks[0])}


def outcome_from_record(record: dict[str, Any], clock: Clock) -> tuple[Unit, Ahead, int]:
    """What `outcome_to_record` wrote down. The tasks themselves are not needed any more, only how many there were."""
    made = Ahead.from_record(record["made"])
    made.walks[0].born = born_from_record(record["born"], made.walks[0])
    place = UnitId(*record["id"])
    drawn = replace(clock, step=place.drawn, tick=place.walk)
    unit = Unit(place, record["phase"], drawn, [Task("done", "", {}, "")] * record["tasks"])
    return unit, made, record["version"]
