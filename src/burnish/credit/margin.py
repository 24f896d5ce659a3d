"""Advantages that also say how far the policy has come from a reference's own replies (AAPO, arXiv 2505.14264)."""

from __future__ import annotations

from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.baselines import spread
from burnish.credit.components import normalised


def group_plus_margin(
    *, low: float, high: float, tag: str = "reference", score: str = "reward", eps: float = 1e-4
) -> Part:
    """A_i = (r_i - mean r) / (std r + eps) + clip(r_i - r'_i, low, high), r'_i the score of the i-th tagged reply.

    Tagged replies are the reference's, as many as there are samples. The margin is not 0 where all samples score the
    same, so that such groups still teach. low = high = 0 is GRPO's advantage.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            theirs = [trace for trace in group.traces if tag in trace.tags]
            mine = [trace for trace in group.traces if tag not in trace.tags]
            relative = normalised([trace.scores[score] for trace in mine], eps)
            for trace, other, advantage in zip(mine, theirs, relative, strict=True):
                margin = max(low, min(high, trace.scores[score] - other.scores[score]))
                spread(trace, advantage + margin)
                step.notes.add("margin", margin)
            for trace in theirs:
                spread(trace, float("nan"))
        return groups

    return Part(
        name="group_plus_margin",
        call=call,
        reads=frozenset({f"score:{score}", f"tag:{tag}"}),
        writes=frozenset({"stream:adv"}),
    )
