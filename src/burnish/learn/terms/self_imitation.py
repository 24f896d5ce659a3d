"""Terms on demonstrated tokens beyond the plain log-likelihood: weighed, smoothed, contrasted, read as
soft Q-values.
"""

from __future__ import annotations

import torch

from burnish.core.schedules import Schedule
from burnish.learn import maths
from burnish.learn.maths.token_weights import smoothed_nll
from burnish.learn.norms import Norm, seq_mean, token_mean
from burnish.learn.term import Authors, Live, Term


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
