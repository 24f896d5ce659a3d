"""Pairs split by how far apart they score: easy ones to learn from, difficult ones to remember."""

from __future__ import annotations

from typing import Any

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.select.remember import Store


class Gaps:
    """The score gaps of the last `capacity` pairs: whether a gap is among the largest `share` of them."""

    def __init__(self, share: float, capacity: int = 512, name: str = "gaps") -> None:
        self.name, self.share, self.capacity = name, share, capacity
        self.seen: list[float] = []

    def add(self, gaps: list[float]) -> None:
        self.seen = [*self.seen, *gaps][-self.capacity :]

    def threshold(self) -> float:
        """The smallest gap that counts as easy."""
        ranked = sorted(self.seen, reverse=True)
        return ranked[min(len(ranked), max(1, round(self.share * len(ranked)))) - 1]

    def state_dict(self) -> dict[str, Any]:
        return {"seen": self.seen}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.seen = [float(gap) for gap in state["seen"]]


@supplies("store:*", "tag:easy")
def easy_pairs(gaps: Gaps, difficult: Store, *, score: str = "gap") -> Part:
    """Groups whose pair's gap is among the largest, tagged "easy"; the others go into the store and are dropped.

    The gap of a pair (a, b) is score(a) - score(b), in absolute value. (MPO, arXiv 2403.19443.)
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        found = [(group, *(group.pairs or [(0, 0)])[0]) for group in sorted(groups, key=lambda one: one.task.key)]
        sizes = [abs(g.traces[a].scores[score] - g.traces[b].scores[score]) for g, a, b in found]
        gaps.add(sizes)
        easy = [group for (group, _, _), size in zip(found, sizes, strict=True) if size >= gaps.threshold()]
        difficult.add([group for group, _, _ in found if not any(group is one for one in easy)])
        step.notes.add("dropped/difficult", len(groups) - len(easy), max(1, len(groups)))
        for trace in (trace for group in easy for trace in group.traces):
            trace.tags |= {"easy"}
        return easy

    return Part(
        name=f"easy_pairs({gaps.share:g})",
        call=call,
        reads=frozenset({"pairs", f"score:{score}"}),
        writes=frozenset({f"store:{difficult.name}", "tag:easy"}),
        state=(gaps, difficult),
    )
