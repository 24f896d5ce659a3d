"""Every comparison that a group allows."""

from __future__ import annotations

from itertools import combinations

from burnish.nouns import Group
from burnish.parts import Part, supplies
from burnish.step import Step


@supplies("pairs")
def every_pair(score: str = "reward") -> Part:
    """All pairs of a group's traces, the better-scored first, ties included: for losses that read the scores themselves.

    Groups of one trace give no pair and are dropped.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            ranked = sorted(range(len(group.traces)), key=lambda i: (-group.traces[i].scores[score], i))
            group.pairs = list(combinations(ranked, 2))
        return [group for group in groups if group.pairs]

    return Part(name="every_pair", call=call, reads=frozenset({f"score:{score}"}), writes=frozenset({"pairs"}))
