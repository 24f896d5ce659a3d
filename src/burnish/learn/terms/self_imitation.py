"""Terms on demonstrated tokens beyond the plain log-likelihood: weighed, smoothed, contrasted, read as
soft Q-values.
"""

from __future__ import annotations

import torch

from burnish.core.schedules import Schedule
from burnish.learn import maths
from burnish.learn.maths.soft_q import implied_reward, next_values
from burnish.learn.maths.token_weights import smoothed_nll
from burnish.learn.norms import Norm, seq_mean, token_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.compared import pair_term
from burnish.learn.terms.rows import row_mean


def imitate_weighted(
    *, norm: Norm = token_mean, coef: Schedule = 1.0, on: Authors = "policy", name: str = "sft"
) -> Term:
    """-w log pi of demonstrated tokens, w from stream "weight"."""

    def loss(live: Live) -> torch.Tensor:
        live.note("nll", -live.logp)
        return maths.nll(live.logp, live.weight)

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), streams=("weight",), norm=norm, coef=coef)


def imitate_smoothed(
    smoothing: float, *, norm: Norm = seq_mean, coef: Schedule = 1.0, on: Authors = "policy", name: str = "sft"
) -> Term:
    """The negative log-likelihood with label smoothing over the vocabulary."""

    def loss(live: Live) -> torch.Tensor:
        live.note("nll", -live.logp)
        return smoothed_nll(live.logits, live.logp, smoothing)

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp", "logits"), norm=norm, coef=coef)


def contrast(smoothing: float, *, coef: Schedule = 1.0, on: Authors = "policy", name: str = "contrast") -> Term:
    """The first trace of a pair is likelier than the second: cross-entropy of P_a / (P_a + P_b), P the geometric means.

    P = exp(mean over the trace's claimed tokens of log pi), so that P_a / (P_a + P_b) = sigmoid(difference of the
    means).
    """

    return pair_term(
        lambda a, b, _: maths.dpo_logistic(a.logp, b.logp, 1.0, smoothing),
        anchor=None,
        reduce=row_mean,
        coef=coef,
        on=on,
        name=name,
    )


def soft_q_penalty(
    gamma: float, *, coef: Schedule, norm: Norm = token_mean, on: Authors = "policy", name: str = "td"
) -> Term:
    """The squared reward (Q_t - gamma V_{t+1})^2 that the logits imply, with gradient through both values."""

    def loss(live: Live) -> torch.Tensor:
        value = torch.logsumexp(live.logits, -1)
        reward = implied_reward(live.logp, value, next_values(value, live.row), gamma)
        live.note("reward", reward)
        return reward.square()

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp", "logits"), norm=norm, coef=coef)
