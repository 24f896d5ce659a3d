"""Terms on demonstrated tokens with advantages, and on a teacher's log-probs of sampled tokens."""

from __future__ import annotations

import torch

from burnish.core.schedules import Schedule
from burnish.learn.maths.hybrid import shaped_surrogate
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term


def pg_shaped(
    gamma: float, *, norm: Norm = token_mean, coef: Schedule = 1.0, on: Authors = "demo", name: str = "demo"
) -> Term:
    """LUFFY's shaped surrogate on stream "demo_adv": no anchor, no clip."""

    def loss(live: Live) -> torch.Tensor:
        live.note("nll", -live.logp)
        return shaped_surrogate(live.logp, live.demo_adv, gamma)

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), streams=("demo_adv",), norm=norm, coef=coef)
