"""Pairs of an expert's action and the policy's own in the same state."""

from __future__ import annotations

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group


@supplies("pairs")
def expert_over_own() -> Part:
    """(expert, own) for each state of a trajectory. A pair of equal actions has no gradient."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            places: dict[int, dict[str, int]] = {}
            for i, trace in enumerate(group.traces):
                places.setdefault(trace.note["step"], {})["expert" if "expert" in trace.tags else "own"] = i
            group.pairs = [(both["expert"], both["own"]) for both in places.values()]
        return groups

    return Part(
        name="expert_over_own",
        call=call,
        reads=frozenset({"tag:expert", "tag:own"}),
        writes=frozenset({"pairs"}),
    )
