"""What a target's battles with rivals leave to train on (Arena Learning)."""

from __future__ import annotations

from collections.abc import Sequence

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.select.pairs import scored_pairs


def winners(score: str = "battle") -> Part:
    """Of each group whose target lost a battle, the rival with the largest lead; other groups are dropped."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            best = max(group.traces, key=lambda trace: trace.scores[score], default=None)
            if best is not None and best.scores[score] > 0:
                group.traces = [best]
                kept.append(group)
        step.notes.add("dropped/not_lost", len(groups) - len(kept), max(1, len(groups)))
        return kept

    return Part(name="winners", call=call, reads=frozenset({f"score:{score}"}), updates=frozenset({"tokens:rival"}))


@supplies("pairs")
def decided_battles(score: str = "battle") -> Part:
    """(winner, loser) of every battle of the first trace, the target's, that was decided."""

    def rule(leads: Sequence[float]) -> list[tuple[int, int]]:
        return [(0, j) if leads[0] > leads[j] else (j, 0) for j in range(1, len(leads))]

    return scored_pairs(rule, name="decided_battles", score=score)
