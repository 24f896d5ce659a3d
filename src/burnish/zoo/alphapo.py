"""AlphaPO: Reward shape matters for LLM alignment (arXiv 2501.03884)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score, select
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, method, roles
from burnish.methods import register
from burnish.papers import Paper

ALPHAPO = Paper("alphapo", "2501.03884", "AlphaPO: Reward shape matters for LLM alignment")

Scale = Annotated[float, Option("Scale of the margin.", above=0)]
Margin = Annotated[float, Option("The margin that a pair must reach.", at_least=0)]


@register(
    ALPHAPO,
    family="preference",
    summary="SimPO with a reward whose shape is a parameter.",
    when="SimPO pushes likelihoods of both replies down too far.",
)
def alphapo(
    task: draw.Source,
    *,
    beta: Scale = 2.5,
    alpha: Annotated[float, Option("Shape of the reward (1 - p^-alpha)/alpha; 0 is SimPO.")] = 0.25,
    gamma: Margin = 0.25,
) -> Method:
    """AlphaPO.

    p = exp( log pi(y|x) / |y| );  L = -log s( beta [p_l^-alpha - p_w^-alpha] / alpha - gamma ),  mean over pairs

    alpha -> 0 is SimPO. The defaults are those of the paper's Mistral runs (gamma / beta = 0.1).
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        learn=learn.Learn(pairs.alphapo(beta, alpha, gamma, on="demo")),
        models=roles(),
        lr_share=0.1,
    )
