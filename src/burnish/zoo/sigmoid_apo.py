"""Anchored Preference Optimization and Contrastive Revisions: Addressing Underspecification in Alignment (arXiv
2408.06266).
"""

from __future__ import annotations

from burnish import credit, draw, learn, rollout, score, select
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

SIGMOID_APO = Paper(
    "sigmoid-apo",
    "2408.06266",
    "Anchored Preference Optimization and Contrastive Revisions: Addressing Underspecification in Alignment",
)


@register(
    SIGMOID_APO,
    family="preference",
    summary="Raise the chosen reply and lower the rejected one, each by itself.",
    when="Chosen replies are better than what the policy would write.",
)
def apo_zero(task: draw.Source, *, beta: opt.Beta = 0.1) -> Method:
    """APO-zero.

    r = beta [log pi(y|x) - log ref(y|x)]
    L = 1 - s(r_w) + s(r_l),  mean over pairs

    The paper's loss is without the constant 1. Use `apo_down` where the policy is better than its data.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.apo_zero(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


@register(
    SIGMOID_APO,
    family="preference",
    summary="Lower both replies of a pair and keep a gap between them.",
    when="The policy is better than both replies of its data.",
)
def apo_down(task: draw.Source, *, beta: opt.Beta = 0.1) -> Method:
    """APO-down.

    r = beta [log pi(y|x) - log ref(y|x)]
    L = s(r_w) + 1 - s(r_w - r_l),  mean over pairs

    The paper's loss is without the constant 1. At the start, where pi is the reference, chosen replies have no
    gradient.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.apo_down(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
