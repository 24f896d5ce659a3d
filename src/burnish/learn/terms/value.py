"""Terms that train critics."""

from __future__ import annotations

import torch

from burnish.core.schedules import Schedule
from burnish.learn import maths
from burnish.learn.maths.value import value_is_clipped
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.fit import head_term


def value_clip(
    eps: float,
    *,
    coef: Schedule = 1.0,
    norm: Norm = token_mean,
    trainee: str = "critic",
    on: Authors = "policy",
    name: str = "value",
) -> Term:
    """PPO's clipped value loss against stream "returns", anchored on stream "value"."""

    def loss(live: Live) -> torch.Tensor:
        value, old = live.outputs["value"], live.streams["value"]
        live.note("error", (value - live.returns).abs())
        live.note("estimate", value)
        live.note("clipped", value_is_clipped(value, old, live.returns, eps))
        return maths.clipped_squared_error(value, old, live.returns, eps)

    return head_term(loss, "value", "value", "returns", name=name, trainee=trainee, on=on, norm=norm, coef=coef)


def value_mse(
    output: str,
    columns: slice | None,
    target: str,
    *,
    coef: Schedule = 1.0,
    trainee: str = "critic",
    on: Authors = "policy",
    name: str = "value",
) -> Term:
    """Squared error of some of the critic's columns against a stream of targets, summed over the columns.

    columns None is for a critic with one output.
    """

    def loss(live: Live) -> torch.Tensor:
        value = live.outputs[output] if columns is None else live.outputs[output][:, columns]
        errors = maths.squared_error(value, live.streams[target])
        live.note("estimate", value.reshape(len(value), -1).mean(-1))
        return errors.reshape(len(errors), -1).sum(-1)

    return head_term(loss, output, target, name=name, trainee=trainee, on=on, coef=coef)
