"""Terms on the log-ratio of a whole step or reply."""

from __future__ import annotations

from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn.maths.regression import advantage_regression
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
