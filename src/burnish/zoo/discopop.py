"""Discovering Preference Optimization Algorithms with and for Large Language Models (arXiv 2406.08414)."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from burnish import draw
from burnish.core.schedules import Schedule
from burnish.learn.maths.chi2 import bounded_exp
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option
from burnish.methods import opt, register
from burnish.methods.given_pairs import from_pairs_and_ref
from burnish.papers import Paper

DISCOPOP = Paper(
    "discopop", "2406.08414", "Discovering Preference Optimization Algorithms with and for Large Language Models"
)


def discovered_loss(logratio_w: Tensor, logratio_l: Tensor, beta: float, tau: float) -> Tensor:
    """DiscoPOP's log-ratio modulated loss (Lu et al., arXiv 2406.08414), per pair.

        x = beta d,   L = (1 - s(x / tau)) (-log s(x)) + s(x / tau) e^-x

    The gate gives pairs that are ordered right to the exponential loss, the others to the logistic one; its gradient
    counts.
    """
    x = beta * (logratio_w - logratio_l)
    gate = torch.sigmoid(x / tau)
    return -(1 - gate) * F.logsigmoid(x) + gate * bounded_exp(-x)


def discovered(beta: Schedule, tau: float, *, on: Authors = "policy") -> Term:
    """DiscoPOP's gated mixture of the logistic and the exponential loss."""
    return pair_term(lambda w, r, beta: discovered_loss(w.logratio, r.logratio, beta, tau), beta=beta, on=on)


@register(
    DISCOPOP,
    family="preference",
    summary="A loss found by search: logistic on pairs in the wrong order, exponential on the others.",
    when="As `dpo`, to try a loss that is not convex.",
)
def discopop(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.05,
    tau: Annotated[float, Option("Temperature of the gate between the two losses.", above=0)] = 0.05,
) -> Method:
    """DiscoPOP (the log-ratio modulated loss).

    x = beta (lr_w - lr_l),  lr = log pi(y|x) - log ref(y|x)
    L = (1 - s(x/tau)) (-log s(x)) + s(x/tau) e^-x,  mean over pairs

    The gradient passes through the gate. e^x goes on as its tangent above x = 10. beta = tau = 0.05 are the paper's.
    With this tau the slope at x = 0 is +0.78: where pi is the reference the loss lowers the margin, until noise or the
    batch carries a pair past the bump (x about 0.1). tau = 1 has no bump.
    """
    return from_pairs_and_ref(task, discovered(beta, tau, on="demo"))
