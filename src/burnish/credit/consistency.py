"""Two signals, one for groups whose answers differ and one for groups that agree (COPO, arXiv 2508.04138)."""

from __future__ import annotations

import math

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.baselines import spread
from burnish.credit.components import normalised


@supplies("stream:adv_global")
def local_and_global(*, sharpness: float, centre: float, gate: float, score: str = "reward", eps: float = 1e-6) -> Part:
    """Streams "adv" = w A_local and "adv_global" = (1 - w) A_global.

        A_local   (r_i - mean r) / (std r + eps) in the group
        A_global  (R(q) - mean R) / (std R + eps) over the prompts of the batch, R(q) the mean score of prompt q's
                  replies
        w         sigmoid(sharpness (H(q) - centre)), H(q) the entropy of the group's answers (score "answer_entropy");
                  0 for a reply that scores `gate` or less

    A clipped surrogate is homogeneous in A for w >= 0, so w L(A) = L(w A): the blend of losses is a sum of two terms.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        means = [sum(trace.scores[score] for trace in group.traces) / len(group.traces) for group in groups]
        for group, across in zip(groups, normalised(means, eps), strict=True):
            local = normalised([trace.scores[score] for trace in group.traces], eps)
            for trace, advantage in zip(group.traces, local, strict=True):
                x = sharpness * (trace.scores["answer_entropy"] - centre)
                w = 0.0 if trace.scores[score] <= gate else sigmoid(x)
                spread(trace, w * advantage)
                spread(trace, (1 - w) * across, "adv_global")
                step.notes.add("local_weight", w)
        return groups

    return Part(
        name="local_and_global",
        call=call,
        reads=frozenset({f"score:{score}", "score:answer_entropy"}),
        writes=frozenset({"stream:adv", "stream:adv_global"}),
    )


def sigmoid(x: float) -> float:
    """1 / (1 + exp(-x)), without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
