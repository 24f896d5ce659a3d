"""Pairs of replies by the axioms of preference (arXiv 2312.02206)."""

from __future__ import annotations

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.learn.maths.axioms import kind_among, pairs_by_axiom


@supplies("pairs")
def axiom_pairs() -> Part:
    """Pairs of a group's replies by the axioms; a reply's kind is one of its tags."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            said = [tuple(trace.tokens.tolist()) for trace in group.traces]
            found = pairs_by_axiom([kind_among(trace.tags) for trace in group.traces])
            group.pairs = [(a, b) for a, b, _ in found if said[a] != said[b]]
        return [group for group in groups if group.pairs]

    return Part(name="axiom_pairs", call=call, reads=frozenset({"tag:axioms"}), writes=frozenset({"pairs"}))
