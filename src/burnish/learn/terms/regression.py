"""Terms on the log-ratio of a whole step or reply."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.core.schedules import Schedule, at
from burnish.learn.maths.chi2 import symmetric_chi2
from burnish.learn.maths.regression import advantage_regression, trajectory_balance
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.rows import row_mean


def regress_advantage(
    beta: float, *, gain: str = "gain", coef: Schedule = 1.0, on: Authors = "policy", name: str = "step"
) -> Term:
    """(A / beta - sum_t log pi/ref)^2 / 2 over the claimed tokens of each trace, A in stream `gain`."""

    def loss(live: Live) -> Tensor:
        log_ratio = live.per_row(live.logp - live.ref)
        live.note("log_ratio", log_ratio)
        return advantage_regression(log_ratio, row_mean(live, live.streams[gain]).to(log_ratio.dtype), beta)

    return Term(
        name=name, on=on, unit="sequence", loss=loss, live=("logp",), streams=("ref", gain), norm=unit_mean, coef=coef
    )


def chi2_pull(*, coef: Schedule, on: Authors = "policy", name: str = "chi2") -> Term:
    """(e^L - 1) + (e^-L - 1) of each reply, L = sum_t log pi/ref, times stream "chi2_scale"."""

    def loss(live: Live) -> Tensor:
        log_ratio = live.per_row(live.logp - live.ref)
        return symmetric_chi2(log_ratio) * row_mean(live, live.chi2_scale).to(log_ratio.dtype)

    return Term(
        name=name,
        on=on,
        unit="sequence",
        loss=loss,
        live=("logp",),
        streams=("ref", "chi2_scale"),
        norm=unit_mean,
        coef=coef,
    )


def balance(beta: Schedule, *, coef: Schedule = 1.0, on: Authors = "policy", name: str = "tb") -> Term:
    """TBA: trajectory balance of each group's replies, their rewards in stream "reward" (summed); one
    number a group.
    """

    def loss(live: Live) -> Tensor:
        log_ratio, reward = live.per_row(live.logp - live.ref), live.per_row(live.reward)
        claimed = live.per_row(torch.ones_like(live.reward)) > 0
        mine = [claimed & (live.group == g) for g in range(int(live.group.max()) + 1)]
        now = at(beta, live.clock)
        empty = log_ratio.sum() * 0  # a group of which nothing is claimed
        return torch.stack(
            [trajectory_balance(log_ratio[m], reward[m].to(log_ratio), now) if bool(m.any()) else empty for m in mine]
        )

    return Term(
        name=name, on=on, unit="group", loss=loss, live=("logp",), streams=("ref", "reward"), norm=unit_mean, coef=coef
    )
