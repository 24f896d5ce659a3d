"""Self-supervised Preference Optimization: Enhance Your Language Model with Preference Degree Awareness (arXiv
2409.17791).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, select
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

SELF_SUPERVISED_PO = Paper(
    "self-supervised-po",
    "2409.17791",
    "Self-supervised Preference Optimization: Enhance Your Language Model with Preference Degree Awareness",
)


@register(
    SELF_SUPERVISED_PO,
    family="preference",
    summary="DPO, and an auxiliary task: to say how many key words are missing from a reply.",
    when="Pairs alone leave the policy blind to degrees of quality.",
)
def self_supervised_po(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    gamma: Annotated[float, Option("Weight of the auxiliary task; 0 is DPO.", at_least=0)] = 0.1,
    levels: Annotated[int, Option("Degrees besides the whole reply.", at_least=1, at_most=9)] = 3,
) -> Method:
    """SPO: self-supervised preference optimisation, around DPO.

    L = mean over pairs of -log s( beta [lr_w - lr_l] ) + gamma mean over graded copies of -log pi(degree | x, copy)

    A copy of degree k lacks the k / levels most important key words (RAKE) of the chosen or the rejected reply. The
    paper has a classifier on the policy's hidden states; here the policy itself answers how much is missing, so that
    the head is the language model's. The paper's text was not available: gamma and levels are ours. gamma = 0 is DPO.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.join(rollout.given("chosen", "rejected"), rollout.graded("chosen", "rejected", levels=levels)),
        select=select.given_pairs(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(learn.dpo(beta, on="demo"), learn.imitate(coef=gamma, on="degree", name="degree")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
