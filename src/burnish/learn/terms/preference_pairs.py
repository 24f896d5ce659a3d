"""Terms on pairs of replies: each is a loss of learn/maths/preference_*.py in a `pair_term`.

`on` names the authors of the replies: "demo" for given pairs, "policy", "past" or "ref" for sampled ones.
"""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn.maths import preference_free as free
from burnish.learn.maths import preference_pairs as maths
from burnish.learn.maths.preference import Replies, dpo_logistic, logistic
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.compared import pair_term, replies_of
from burnish.learn.terms.rows import row_mean


def ipo(tau: Schedule, *, on: Authors = "policy") -> Term:
    """(d - 1/(2 tau))^2 on the pairs."""
    return pair_term(lambda w, r, tau: maths.ipo_squared(w.logratio, r.logratio, tau), beta=tau, on=on)


def dpo_both_ways(w: Replies, r: Replies, beta: float) -> tuple[Tensor, Tensor]:
    """DPO's loss of the label and of its opposite."""
    return dpo_logistic(w.logratio, r.logratio, beta), dpo_logistic(r.logratio, w.logratio, beta)


def weighted_tokens(beta: Schedule, *, on: Authors = "policy", weight: str = "weight") -> Term:
    """DPO on log-ratios whose tokens are weighted by a stream (TGDPO)."""
    return pair_term(lambda w, r, beta: dpo_logistic(w.logratio, r.logratio, beta), beta=beta, weight=weight, on=on)


def pair_sides(live: Live) -> tuple[Replies, Replies]:
    """The preferred and the other replies of the pairs."""
    everyone = replies_of(live)
    return everyone.at(live.pairs[:, 0]), everyone.at(live.pairs[:, 1])


def against_population(target: float, weights: dict[str, float], *, on: Authors = "policy") -> Term:
    """INPO and MNPO: (log pi_w/pi_l - sum_j weight_j log pi_j(w)/pi_j(l) - target)^2, pi_j's log-probs in stream j.

    It is the mean over the two labels of a pair, of which the first has the chance in stream "preference".
    """
    anchors = tuple(weights)

    def loss(w: Replies, r: Replies, _: float) -> Tensor:
        behind = sum((weight * (w[name] - r[name]) for name, weight in weights.items()), torch.zeros_like(w.logp))
        return maths.population_squared(w.logp - r.logp, behind, target, w["preference"].to(w.logp))

    return pair_term(loss, anchor=None, streams=anchors, marks=("preference",), on=on)


def simpo(beta: Schedule, gamma: float, *, on: Authors = "policy") -> Term:
    """SimPO: mean log-probs, a margin gamma, no reference."""
    return pair_term(
        lambda w, r, beta: logistic(free.simpo_margin(w.logp, r.logp, beta, gamma)),
        beta=beta,
        anchor=None,
        reduce=row_mean,
        on=on,
    )


def odds_ratio(*, coef: Schedule, on: Authors = "policy") -> Term:
    """ORPO's odds-ratio loss."""
    return pair_term(
        lambda w, r, _: free.orpo_odds(w.logp, r.logp), anchor=None, reduce=row_mean, coef=coef, on=on, name="odds"
    )


def uniform_reference(beta: Schedule, *, on: Authors = "policy") -> Term:
    """CPO and TPO: -log s(beta (log pi_w - log pi_l)), DPO with a uniform reference."""
    return pair_term(lambda w, r, beta: logistic(beta * (w.logp - r.logp)), beta=beta, anchor=None, on=on)
