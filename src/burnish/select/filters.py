"""Filters by score: which groups and which replies stay. They make no comparisons; pairs.py does."""

from __future__ import annotations

import statistics

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group


@supplies("tag:mixed")
def mixed(score: str = "reward") -> Part:
    """Only groups whose replies do not all score the same; their traces get the tag "mixed".

    DAPO's dynamic sampling (arXiv 2503.14476) without its refill (`refill.refilled`): for a verifier that says right or
    wrong these are the groups with 0 < right < n. The test is on the verifier's own score, before any shaping. A term
    that claims
    claim(TERM, AUTHOR, tag="mixed") cannot be built without this part before it.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = [group for group in groups if len({trace.scores[score] for trace in group.traces}) > 1]
        for trace in (trace for group in kept for trace in group.traces):
            trace.tags = trace.tags | {"mixed"}
        step.notes.add("dropped/all_the_same", len(groups) - len(kept), len(groups))
        return kept

    return Part(
        name="mixed",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"tag:mixed"}),
        updates=frozenset({"tokens:policy"}),
    )


def keep_best(k: int = 1, score: str = "reward") -> Part:
    """Only the k best-scored traces of every group; ties go to the earlier sample."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            step.notes.add(
                "score/before_selection", sum(trace.scores[score] for trace in group.traces), len(group.traces)
            )
            ranked = sorted(range(len(group.traces)), key=lambda i: (-group.traces[i].scores[score], i))
            group.traces = [group.traces[i] for i in ranked[:k]]
            step.notes.add("score/selected", sum(trace.scores[score] for trace in group.traces), len(group.traces))
        return groups

    return Part(
        name=f"keep_best({k})", call=call, reads=frozenset({f"score:{score}"}), updates=frozenset({"tokens:policy"})
    )


@supplies("tag:spread")
def most_spread(share: float, score: str = "reward") -> Part:
    """Only the share of the groups whose scores have the largest deviation, rounded down, at least one; their traces
    get the tag "spread". Groups with equal deviations stay in their order (RAGEN's uncertainty filter, arXiv
    2504.20073).
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        spreads = [statistics.pstdev([trace.scores[score] for trace in group.traces]) for group in groups]
        kept = sorted(range(len(groups)), key=lambda i: (-spreads[i], i))[: max(1, int(share * len(groups) + 1e-9))]
        for trace in (trace for i in kept for trace in groups[i].traces):
            trace.tags = trace.tags | {"spread"}
        step.notes.add("dropped/less_spread", len(groups) - len(kept), max(1, len(groups)))
        return [groups[i] for i in sorted(kept)]

    return Part(
        name=f"most_spread({share:g})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"tag:spread"}),
        updates=frozenset({"tokens:policy"}),
    )
