"""Terms that fit a value model's numbers to targets."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from burnish.core.schedules import Schedule
from burnish.learn import maths
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Loss, Term, Unit


def head_term(
    loss: Loss,
    output: str,
    *targets: str,
    name: str,
    trainee: str,
    on: Authors = "policy",
    unit: Unit = "token",
    norm: Norm = token_mean,
    coef: Schedule = 1.0,
) -> Term:
    """A term that fits what a model's head says ("value" before a token, "score" after it) to streams of targets."""
    return Term(
        name=name, on=on, unit=unit, loss=loss, live=(output,), streams=targets, norm=norm, trainee=trainee, coef=coef
    )


def value_fit(
    target: str,
    *,
    output: str = "value",
    coef: Schedule = 0.5,
    norm: Norm = token_mean,
    trainee: str = "critic",
    on: Authors = "policy",
    name: str = "value",
) -> Term:
    """(V - target)^2 at the claimed tokens; output "value" is read before a token, "score" after it."""

    def loss(live: Live) -> torch.Tensor:
        live.note("error", (live.outputs[output] - live.streams[target]).abs())
        return maths.squared_error(live.outputs[output], live.streams[target])

    return head_term(loss, output, target, name=name, trainee=trainee, on=on, norm=norm, coef=coef)


def chance_fit(
    target: str,
    *,
    output: str = "value",
    norm: Norm = token_mean,
    trainee: str = "critic",
    on: Authors = "policy",
    name: str = "chance",
) -> Term:
    """Cross-entropy of sigmoid(V) against a chance of success in [0, 1]: -p log sigmoid(V) - (1 - p)
    log sigmoid(-V). Of a critic with several heads, summed over them.
    """

    def loss(live: Live) -> torch.Tensor:
        value = live.outputs[output].reshape(len(live.row), -1)
        chance = live.streams[target].to(value.dtype)[:, None].expand_as(value)
        live.note("error", (value.sigmoid() - chance).abs().mean(-1))
        return F.binary_cross_entropy_with_logits(value, chance, reduction="none").sum(-1)

    return head_term(loss, output, target, name=name, trainee=trainee, on=on, norm=norm)
