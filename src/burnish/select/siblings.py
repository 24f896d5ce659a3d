"""Pairs of replies that were made in the same state."""

from __future__ import annotations

from itertools import combinations

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace


@supplies("pairs")
def sibling_pairs(gap: float, *, tag: str = "node", score: str = "reward", alone: bool = False) -> Part:
    """Pairs of traces that share all turns but the last, and whose scores differ by more than the gap; better first.

    Equal replies are no pair. Traces that are in no pair are dropped, and groups without one; alone: they stay.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            by_state: dict[int, list[int]] = {}
            for i, trace in enumerate(group.traces):
                if tag in trace.tags:
                    by_state.setdefault(id(trace.turns[-2]), []).append(i)
            pairs = [
                (a, b) if group.traces[a].scores[score] > group.traces[b].scores[score] else (b, a)
                for same in by_state.values()
                for a, b in combinations(same, 2)
                if _apart(group.traces[a], group.traces[b], score) > gap
            ]
            paired = dict.fromkeys(i for pair in pairs for i in pair)
            place = {i: k for k, i in enumerate(range(len(group.traces)) if alone else paired)}
            if pairs or alone:
                group.traces = [group.traces[i] for i in place]
                group.pairs = [(place[a], place[b]) for a, b in pairs]
                kept.append(group)
        step.notes.add("dropped/no_preference", sum(not group.pairs for group in groups), max(1, len(groups)))
        return kept

    return Part(
        name=f"sibling_pairs({gap:g})",
        call=call,
        reads=frozenset({f"score:{score}", f"tag:{tag}"}),
        writes=frozenset({"pairs"}),
    )


def _apart(a: Trace, b: Trace, score: str) -> float:
    """The distance of two scores; 0 for equal replies."""
    same = a.turns[-1].tokens.tolist() == b.turns[-1].tokens.tolist()
    return 0.0 if same else abs(a.scores[score] - b.scores[score])
