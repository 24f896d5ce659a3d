"""Scores that came with the data."""

from __future__ import annotations

from burnish.nouns import Group
from burnish.parts import Part, supplies
from burnish.step import Step


@supplies("score:reward")
def given_order(*tags: str) -> Part:
    """The tags' order is the order of preference: given_order("chosen", "rejected") scores 1 and 0."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            for trace in group.traces:
                rank = next(i for i, tag in enumerate(tags) if tag in trace.tags)
                trace.scores["reward"] = float(len(tags) - 1 - rank)
        return groups

    return Part(
        name=f"given_order({', '.join(tags)})",
        call=call,
        reads=frozenset(f"tag:{tag}" for tag in tags),
        writes=frozenset({"score:reward"}),
    )
