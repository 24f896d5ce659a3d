"""Terms on the log-ratio of a whole step or reply."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.learn.maths.chi2 import symmetric_chi2
from burnish.learn.maths.regression import advantage_regression
from burnish.learn.norms import unit_mean
from burnish.learn.term import Live, Term
from burnish.schedules import Schedule


def _per_row_mean(live: Live, x: Tensor) -> Tensor:
    """A stream that is the same on all tokens of a row, once a row."""
    return live.per_row(x) / live.per_row(torch.ones_like(x)).clamp(min=1)


def regress_advantage(beta: float, *, gain: str = "gain", name: str = "step") -> Term:
    """(A / beta - sum_t log pi/ref)^2 / 2 over the claimed tokens of each trace, A in stream `gain`."""

    def loss(live: Live) -> Tensor:
        log_ratio = live.per_row(live.logp - live.ref)
        live.note("log_ratio", log_ratio)
        return advantage_regression(log_ratio, _per_row_mean(live, live.streams[gain]).to(log_ratio.dtype), beta)

    return Term(name=name, unit="sequence", loss=loss, live=("logp",), streams=("ref", gain), norm=unit_mean)


def chi2_pull(*, coef: Schedule, name: str = "chi2") -> Term:
    """(e^L - 1) + (e^-L - 1) of each reply, L = sum_t log pi/ref, times stream "chi2_scale"."""

    def loss(live: Live) -> Tensor:
        log_ratio = live.per_row(live.logp - live.ref)
        return symmetric_chi2(log_ratio) * _per_row_mean(live, live.chi2_scale).to(log_ratio.dtype)

    return Term(
        name=name, unit="sequence", loss=loss, live=("logp",), streams=("ref", "chi2_scale"), norm=unit_mean, coef=coef
    )
