"""Policy-gradient terms, and the terms that hold the policy near something."""

from __future__ import annotations

import torch

from burnish.core.schedules import Schedule
from burnish.learn import maths
from burnish.learn.maths.policy import was_clipped
from burnish.learn.norms import Norm, seq_mean, seq_sum_mean, token_mean
from burnish.learn.term import Authors, Live, Term


def pg_clip(
    eps_low: float,
    eps_high: float | None = None,
    *,
    norm: Norm = token_mean,
    dual: float | None = None,
    adv: str = "adv",
    weight: str | None = None,
    coef: Schedule = 1.0,
    trainee: str = "policy",
    on: Authors = "policy",
    name: str = "pg",
) -> Term:
    """PPO's clipped surrogate on the stream of advantages `adv`, anchored on stream "old".

    Each token's loss is multiplied by the stream `weight`, if any: a token of weight 0 has no gradient and keeps its
    place in the norm's size.
    """
    high = eps_low if eps_high is None else eps_high

    def loss(live: Live) -> torch.Tensor:
        live.note("clipped", was_clipped(live.logp, live.old, live.streams[adv], eps_low, high))
        live.note("old_kl", maths.k3(live.logp, live.old))
        live.note("entropy", live.entropy)
        losses = maths.clipped_surrogate(live.logp, live.old, live.streams[adv], eps_low, high, dual)
        return losses if weight is None else live.streams[weight] * losses

    streams = (adv, "old") if weight is None else (adv, "old", weight)
    return Term(
        name=name,
        on=on,
        unit="token",
        loss=loss,
        live=("logp", "entropy"),
        streams=streams,
        norm=norm,
        trainee=trainee,
        coef=coef,
    )


def pg_reinforce(*, norm: Norm = seq_sum_mean, coef: Schedule = 1.0, on: Authors = "policy", name: str = "pg") -> Term:
    """-A log pi on stream "adv"."""

    def loss(live: Live) -> torch.Tensor:
        live.note("entropy", live.entropy)
        return maths.reinforce(live.logp, live.adv)

    return Term(
        name=name, on=on, unit="token", loss=loss, live=("logp", "entropy"), streams=("adv",), norm=norm, coef=coef
    )


def kl_k3(*, coef: Schedule, norm: Norm = seq_mean, on: Authors = "policy", name: str = "kl") -> Term:
    """GRPO's KL to the reference (stream "ref"), estimated by k3 at the sampled tokens."""

    def loss(live: Live) -> torch.Tensor:
        return maths.k3(live.logp, live.ref)

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), streams=("ref",), norm=norm, coef=coef)


def kl_k2(
    *, coef: Schedule, anchor: str = "ref", norm: Norm = token_mean, on: Authors = "policy", name: str = "kl"
) -> Term:
    """k2 at the sampled tokens, (log pi - log anchor)^2 / 2: its gradient is that of the reverse KL to the anchor's
    policy.
    """

    def loss(live: Live) -> torch.Tensor:
        return maths.k2(live.logp, live.streams[anchor])

    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), streams=(anchor,), norm=norm, coef=coef)


def entropy_bonus(*, coef: Schedule, norm: Norm = token_mean, on: Authors = "policy", name: str = "entropy") -> Term:
    """-entropy: minimising it with a positive coefficient keeps the policy undecided."""
    return Term(
        name=name, on=on, unit="token", loss=lambda live: -live.entropy, live=("entropy",), norm=norm, coef=coef
    )
