"""Pairs in which the shorter right reply is preferred."""

from __future__ import annotations

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group


@supplies("pairs")
def shortest_vs_longer(ratio: float = 1.5, *, threshold: float = 0.5, score: str = "reward") -> Part:
    """Long2short pairs (Kimi k1.5, arXiv 2501.12599, section 2.4): the shortest right reply over every longer one that
    is wrong, and over every right one that is `ratio` times as long.

    Groups without such a pair are dropped.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            lengths = [int(trace.by("policy").sum()) for trace in group.traces]
            right = [trace.scores[score] > threshold for trace in group.traces]
            if not any(right):
                continue
            best = min((i for i in range(len(right)) if right[i]), key=lambda i: lengths[i])
            least = [ratio * lengths[best] if ok else lengths[best] + 1 for ok in right]
            group.pairs = [(best, i) for i in range(len(right)) if i != best and lengths[i] >= least[i]]
            kept += [group] if group.pairs else []
        step.notes.add("dropped/no_preference", len(groups) - len(kept), len(groups))
        return kept

    reads = frozenset({f"score:{score}", "tokens:policy"})
    return Part(name=f"shortest_vs_longer({ratio:g})", call=call, reads=reads, writes=frozenset({"pairs"}))
