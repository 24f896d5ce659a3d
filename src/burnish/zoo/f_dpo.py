"""Beyond Reverse KL: Generalizing Direct Preference Optimization with Diverse Divergence Constraints (arXiv
2309.16240).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import torch.nn.functional as F
from torch import Tensor

from burnish import draw
from burnish.core.schedules import Schedule
from burnish.learn.maths.chi2 import bounded_exp
from burnish.learn.maths.preference import logistic
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term
from burnish.method import Method, Option
from burnish.methods import opt, register
from burnish.methods.given_pairs import from_pairs_and_ref
from burnish.papers import Paper

F_DPO = Paper(
    "f-dpo",
    "2309.16240",
    "Beyond Reverse KL: Generalizing Direct Preference Optimization with Diverse Divergence Constraints",
)

Slope = Callable[[Tensor], Tensor]  # f'(u) of a divergence, as a function of log u


def reverse_kl(log_u: Tensor) -> Tensor:
    """f'(u) = log u + 1: the reverse KL, DPO's."""
    return log_u + 1


def forward_kl(log_u: Tensor) -> Tensor:
    """f'(u) = -1/u: the forward KL."""
    return -bounded_exp(-log_u)


def jensen_shannon(log_u: Tensor) -> Tensor:
    """f'(u) = log(2u / (1 + u)): the Jensen-Shannon divergence."""
    return math.log(2) + F.logsigmoid(log_u)


def alpha_divergence(alpha: float) -> Slope:
    """f'(u) = (1 - u^-alpha) / alpha, 0 < alpha < 1: between the reverse KL (0) and the forward KL (1)."""
    if not 0 < alpha < 1:
        raise ValueError(f"the alpha of an alpha-divergence is {alpha}; it must lie between 0 and 1")
    return lambda log_u: (1 - bounded_exp(-alpha * log_u)) / alpha


def f_margin(logratio_w: Tensor, logratio_l: Tensor, beta: float, slope: Slope) -> Tensor:
    """The margin of f-DPO (Wang et al., arXiv 2309.16240), per pair: beta f'(u_w) - beta f'(u_l).

    u = pi / ref of a reply.

    With `reverse_kl` it is DPO's. e^x is continued by its tangent above x = 10, so that long replies stay finite.
    """
    return beta * (slope(logratio_w) - slope(logratio_l))


def divergence_term(beta: Schedule, slope: Slope, *, on: Authors = "policy") -> Term:
    """f-DPO: the logistic loss of beta (f'(u_w) - f'(u_l))."""
    return pair_term(lambda w, r, beta: logistic(f_margin(w.logratio, r.logratio, beta, slope)), beta=beta, on=on)


SLOPES = {
    "reverse_kl": lambda alpha: reverse_kl,
    "forward_kl": lambda alpha: forward_kl,
    "jensen_shannon": lambda alpha: jensen_shannon,
    "alpha": alpha_divergence,
}


@register(
    F_DPO,
    family="preference",
    summary="DPO under another divergence than the reverse KL.",
    when="DPO costs too much diversity: divergences towards the forward KL keep more of it.",
)
def f_dpo(
    task: draw.Source,
    *,
    divergence: Annotated[str, Option("The divergence from the reference.", choices=tuple(SLOPES))] = "alpha",
    alpha: Annotated[float, Option("Order of the alpha-divergence, with divergence alpha.", above=0, below=1)] = 0.5,
    beta: opt.Beta = 0.1,
) -> Method:
    """f-DPO.

    u = pi(y|x) / ref(y|x);  L = -log s( beta f'(u_w) - beta f'(u_l) ),  mean over pairs
    f'(u): reverse_kl log u + 1 (DPO);  forward_kl -1/u;  jensen_shannon log(2u/(1+u));  alpha (1 - u^-alpha)/alpha

    e^x goes on as its tangent above x = 10, so that long replies stay finite; the authors' code has no such bound.
    """
    return from_pairs_and_ref(task, divergence_term(beta, SLOPES[divergence](alpha), on="demo"))
