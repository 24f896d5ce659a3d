"""Terms on demonstrations."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn import maths
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term


def imitate(
    *,
    weight: Callable[[Tensor], Tensor] | None = None,
    norm: Norm = token_mean,
    coef: Schedule = 1.0,
    trainee: str = "policy",
    on: Authors = "policy",
    name: str = "sft",
) -> Term:
    """-log pi of demonstrated tokens, each times weight(log pi), held constant, where a weight is given."""

    def loss(live: Live) -> torch.Tensor:
        live.note("nll", -live.logp)
        return maths.nll(live.logp, None if weight is None else weight(live.logp))

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), norm=norm, trainee=trainee, coef=coef)
