"""Which groups have something to teach."""

from __future__ import annotations

from burnish.nouns import Group
from burnish.parts import Part, supplies
from burnish.step import Step


@supplies("tag:mixed")
def mixed(score: str = "reward") -> Part:
    """Only groups whose replies do not all score the same; their traces get the tag "mixed".

    DAPO's dynamic sampling (arXiv 2503.14476) without its refill (`refill.refilled`): for a verifier that says right or wrong these are the
    groups with 0 < right < n. The test is on the verifier's own score, before any shaping. A term that claims
    member(TERM, AUTHOR, tag="mixed") cannot be built without this part before it.
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
