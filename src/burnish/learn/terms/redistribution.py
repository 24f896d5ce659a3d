"""The term that trains a model to divide an outcome among the turns that led to it."""

from __future__ import annotations

from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn import maths
from burnish.learn.norms import unit_mean
from burnish.learn.term import CLAIMED, Live, Term
from burnish.learn.terms.rows import row_mean


def redistribution(
    target: str = "outcome", *, trainee: str = "estimator", coef: Schedule = 1.0, name: str = "redistribution"
) -> Term:
    """(sum_k c_k - R)^2 for each trace, c_k the score after the k-th claimed token, R in a stream (SPA-RL)."""

    def loss(live: Live) -> Tensor:
        total, wanted = live.per_row(live.outputs["score"]), row_mean(live, live.streams[target])
        live.note("error", (total - wanted).abs())
        return maths.squared_error(total, wanted.to(total.dtype))

    return Term(
        name=name,
        on=CLAIMED,
        unit="sequence",
        loss=loss,
        live=("score",),
        streams=(target,),
        norm=unit_mean,
        trainee=trainee,
        coef=coef,
    )
