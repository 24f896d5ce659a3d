"""AlphaPO: Reward shape matters for LLM alignment (arXiv 2501.03884)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from burnish import draw
from burnish.core.schedules import Schedule
from burnish.learn.maths.preference import logistic
from burnish.learn.maths.preference_free import simpo_margin
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.learn.terms.rows import row_mean
from burnish.method import Method, Option
from burnish.methods import register
from burnish.methods.given_pairs import from_pairs
from burnish.papers import Paper

ALPHAPO = Paper("alphapo", "2501.03884", "AlphaPO: Reward shape matters for LLM alignment")

Scale = Annotated[float, Option("Scale of the margin.", above=0)]
Margin = Annotated[float, Option("The margin that a pair must reach.", at_least=0)]


def alphapo_margin(mean_w: Tensor, mean_l: Tensor, alpha: float, beta: float, gamma: float) -> Tensor:
    """AlphaPO's margin (Gupta et al., arXiv 2501.03884): beta (p_l^-alpha - p_w^-alpha) / alpha - gamma, p = e^m.

    The reward (1 - p^-alpha) / alpha is log p in the limit alpha -> 0, which is SimPO; alpha = -1 is linear in p.
    """
    if alpha == 0:
        return simpo_margin(mean_w, mean_l, beta, gamma)
    reward_w, reward_l = (-torch.expm1(-alpha * mean) / alpha for mean in (mean_w, mean_l))
    return beta * (reward_w - reward_l) - gamma


def alphapo_term(beta: Schedule, alpha: float, gamma: float, *, on: Authors = "policy") -> Term:
    """AlphaPO: SimPO with the reward (1 - p^-alpha) / alpha."""
    return pair_term(
        lambda w, r, beta: logistic(alphapo_margin(w.logp, r.logp, alpha, beta, gamma)),
        beta=beta,
        anchor=None,
        reduce=row_mean,
        on=on,
    )


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
    return from_pairs(task, alphapo_term(beta, alpha, gamma, on="demo"))
