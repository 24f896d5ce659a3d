"""The KL to the reference as a squared log-ratio."""

from __future__ import annotations

import torch

from burnish.learn import maths
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Live, Term
from burnish.schedules import Schedule


def kl_k2(*, coef: Schedule, norm: Norm = token_mean, name: str = "kl") -> Term:
    """k2 at the sampled tokens, (log pi - log ref)^2 / 2, whose gradient is the reverse KL's (stream "ref")."""

    def loss(live: Live) -> torch.Tensor:
        return maths.k2(live.logp, live.ref)

    return Term(name=name, unit="token", loss=loss, live=("logp",), streams=("ref",), norm=norm, coef=coef)
