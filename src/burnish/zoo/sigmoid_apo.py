"""Anchored Preference Optimization and Contrastive Revisions: Addressing Underspecification in Alignment (arXiv
2408.06266).
"""

from __future__ import annotations

import torch
from torch import Tensor

from burnish import draw
from burnish.core.schedules import Schedule
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.method import Method
from burnish.methods import opt, register
from burnish.methods.given_pairs import from_pairs_and_ref
from burnish.papers import Paper

SIGMOID_APO = Paper(
    "sigmoid-apo",
    "2408.06266",
    "Anchored Preference Optimization and Contrastive Revisions: Addressing Underspecification in Alignment",
)


def apo_zero_loss(logratio_w: Tensor, logratio_l: Tensor, beta: float) -> Tensor:
    """APO-zero (D'Oosterlinck et al., arXiv 2408.06266), per pair: 1 - s(r_w) + s(r_l).

    Raises the preferred reply and lowers the other, each with respect to the reference alone.
    """
    return 1 - torch.sigmoid(beta * logratio_w) + torch.sigmoid(beta * logratio_l)


def apo_down_loss(logratio_w: Tensor, logratio_l: Tensor, beta: float) -> Tensor:
    """APO-down (arXiv 2408.06266), per pair: s(r_w) + 1 - s(r_w - r_l).

    Lowers both replies and keeps a gap between them, for a model that is better than its data. Where pi is the
    reference the gradient on the preferred reply is 0.
    """
    return torch.sigmoid(beta * logratio_w) + 1 - torch.sigmoid(beta * (logratio_w - logratio_l))


def apo_zero_term(beta: Schedule, *, on: Authors = "policy") -> Term:
    """1 - s(r_w) + s(r_l) on the pairs."""
    return pair_term(lambda w, r, beta: apo_zero_loss(w.logratio, r.logratio, beta), beta=beta, on=on)


def apo_down_term(beta: Schedule, *, on: Authors = "policy") -> Term:
    """s(r_w) + 1 - s(r_w - r_l) on the pairs."""
    return pair_term(lambda w, r, beta: apo_down_loss(w.logratio, r.logratio, beta), beta=beta, on=on)


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
    return from_pairs_and_ref(task, apo_zero_term(beta, on="demo"))


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
    return from_pairs_and_ref(task, apo_down_term(beta, on="demo"))
