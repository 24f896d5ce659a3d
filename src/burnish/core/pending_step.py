"""Sampled and scored steps that are not learned from yet: kept while sampling runs ahead, and saved in checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from burnish.core.rejected import RejectedUpdate
from burnish.core.sample_ledger import SampleBirth, SampleFate, UnitRow
from burnish.core.state import State
from burnish.core.step import Dropped, Notes
from burnish.core.types import Clock, Group
from burnish.core.types_json import group_from_record, group_to_record

Seconds = dict[str, float]  # stage -> seconds
Trail = list[tuple[str, int]]  # (part, number of traces after it), in order


@dataclass
class Sampled:
    """Scored groups of one pass, and the traces that were dropped on the way.

    born: every sample of the pass, where samples are accounted for one by one (burnish/core/sample_ledger.py)
    """

    groups: list[Group]
    dropped: list[Dropped] = field(default_factory=list)
    born: list[SampleBirth] = field(default_factory=list)

    def to_record(self) -> dict[str, Any]:
        dropped = [(group_to_record(Group(one.task, [one.trace])), one.part) for one in self.dropped]
        return {"groups": [group_to_record(group) for group in self.groups], "dropped": dropped}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Sampled:
        alone = [(group_from_record(group), part) for group, part in record["dropped"]]
        dropped = [Dropped(group.task, group.traces[0], part) for group, part in alone]
        return cls([group_from_record(group) for group in record["groups"]], dropped)


@dataclass
class PartialStep:
    """A step that is sampled and scored but not learned from: `passes` has one Sampled per pass of `phase`."""

    step: int
    phase: str = ""
    passes: list[Sampled] = field(default_factory=list)
    notes: Notes = field(default_factory=Notes)
    seconds: Seconds = field(default_factory=dict)
    trail: Trail = field(default_factory=list)
    refusals: list[RejectedUpdate] = field(default_factory=list)
    done: bool = True
    ledger: list[SampleFate] = field(default_factory=list)
    units: list[UnitRow] = field(default_factory=list)

    def to_record(self) -> dict[str, Any]:
        """JSON-able values. Seconds are left out: a rerun does not repeat them."""
        refused = [(r.phase, r.why, [group_to_record(group) for group in r.groups]) for r in self.refusals]
        passes = [sampled.to_record() for sampled in self.passes]
        # The key "walks" is kept for compatibility with older checkpoints.
        head = {"step": self.step, "phase": self.phase, "walks": passes, "notes": self.notes.state_dict()}
        return {**head, "trail": self.trail, "refusals": refused}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> PartialStep:
        passes = [Sampled.from_record(sampled) for sampled in record["walks"]]
        step = cls(record["step"], record["phase"], passes, trail=[(name, n) for name, n in record["trail"]])
        step.notes.load_state_dict(record["notes"])
        step.refusals += [
            RejectedUpdate(phase, why, [group_from_record(group) for group in groups])
            for phase, why, groups in record["refusals"]
        ]
        return step


class SampleSource(Protocol):
    """Source of a step's samples if they are not sampled within the step: a pipeline or Ray actors. Stateful.

    say: called with messages for the user, e.g. during a long wait
    """

    name: str
    say: Callable[[str], None]

    def __enter__(self) -> Any: ...

    def __exit__(self, *_: object) -> None: ...

    def take(self, clock: Clock) -> PartialStep: ...

    def state_dict(self) -> State: ...

    def load_state_dict(self, state: State) -> None: ...


def joined(outcomes: Sequence[PartialStep], step: int, phase: str) -> PartialStep:
    """Join the outcomes of parts of one pass in the given order, as if they had been one batch."""
    joint = PartialStep(step, phase, [Sampled([])])
    sampled = joint.passes[0]
    for outcome in outcomes:
        for sampled_unit in outcome.passes:
            sampled.groups += sampled_unit.groups
            sampled.dropped += sampled_unit.dropped
            sampled.born += sampled_unit.born
        joint.notes.absorb(outcome.notes.state_dict())
        for stage, seconds in outcome.seconds.items():
            joint.seconds[stage] = joint.seconds.get(stage, 0.0) + seconds
        joint.trail = _added(joint.trail, outcome.trail)
        joint.refusals += outcome.refusals
    return joint


def _added(one: Trail, other: Trail) -> Trail:
    """The sum of the trails of two parts of one pass: trace counts per part.

    A part that was rejected or empty has a shorter trail.
    """
    longer, shorter = (one, other) if len(one) >= len(other) else (other, one)
    return [(name, n + (shorter[i][1] if i < len(shorter) else 0)) for i, (name, n) in enumerate(longer)]
