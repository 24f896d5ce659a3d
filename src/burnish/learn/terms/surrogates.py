"""Terms whose ratio is bounded otherwise than by PPO's clip, and the terms that hold a policy near its old self."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn import maths
from burnish.learn.maths import surrogates
from burnish.learn.maths.policy import was_clipped
from burnish.learn.norms import Norm, seq_mean, token_mean, unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.rows import note_drift, row_mean

LIVE = ("logp", "entropy")
STREAMS = ("adv", "old")


def pg_sequence(
    eps_low: float, eps_high: float, *, coef: Schedule = 1.0, on: Authors = "policy", name: str = "pg"
) -> Term:
    """GSPO: PPO's clip on one ratio a reply, s = (pi(y) / pi_old(y))^(1/|y|), the geometric mean of its
    token ratios.
    """
    return reply_ratio_term(row_mean, eps_low, eps_high, coef, on, name)


def pg_sequence_by_token(
    eps_low: float,
    eps_high: float,
    *,
    norm: Norm = seq_mean,
    coef: Schedule = 1.0,
    on: Authors = "policy",
    name: str = "pg",
) -> Term:
    """GSPO-token: the ratio sg[s] pi_t / sg[pi_t], with the value of the reply's s and the gradient of the token."""

    def loss(live: Live) -> Tensor:
        anchored = live.logp.detach() - row_mean(live, live.logp.detach() - live.old)[live.row]
        live.note("clipped", was_clipped(live.logp, anchored, live.adv, eps_low, eps_high))
        note_drift(live)
        return maths.clipped_surrogate(live.logp, anchored, live.adv, eps_low, eps_high)

    return Term(name=name, on=on, unit="token", loss=loss, live=LIVE, streams=STREAMS, norm=norm, coef=coef)


def pg_soft(
    tau_pos: float,
    tau_neg: float,
    *,
    norm: Norm = seq_mean,
    coef: Schedule = 1.0,
    on: Authors = "policy",
    name: str = "pg",
) -> Term:
    """SAPO: a soft gate on the token ratio, steeper where the advantage is negative."""
    return token_term(
        lambda live: surrogates.soft_gate(live.logp, live.old, live.adv, tau_pos, tau_neg), norm, coef, on, name
    )


def pg_held_ratio(
    low: float, high: float, *, norm: Norm = token_mean, coef: Schedule = 1.0, on: Authors = "policy", name: str = "pg"
) -> Term:
    """CISPO: REINFORCE weighed by the token ratio, which is held constant and kept between low and high."""
    return token_term(
        lambda live: surrogates.held_ratio(live.logp, live.old, live.adv, low, high), norm, coef, on, name
    )


def token_term(losses: Callable[[Live], Tensor], norm: Norm, coef: Schedule, on: Authors, name: str) -> Term:
    """A term over tokens with a ratio to the policy that sampled them, which also records how far the two are apart."""

    def loss(live: Live) -> Tensor:
        note_drift(live)
        return losses(live)

    return Term(name=name, on=on, unit="token", loss=loss, live=LIVE, streams=STREAMS, norm=norm, coef=coef)


def reply_ratio_term(
    reduce: Callable[[Live, Tensor], Tensor], eps_low: float, eps_high: float, coef: Schedule, on: Authors, name: str
) -> Term:
    """PPO's clip on one ratio a reply, whose logarithm is made of the token log-ratios by `reduce`."""

    def loss(live: Live) -> Tensor:
        log_ratio, adv = reduce(live, live.logp - live.old), row_mean(live, live.adv)
        none = torch.zeros_like(log_ratio)  # the ratio is taken already
        live.note("clipped", was_clipped(log_ratio, none, adv, eps_low, eps_high))
        live.note("entropy", row_mean(live, live.entropy))
        return maths.clipped_surrogate(log_ratio, none, adv, eps_low, eps_high)

    return Term(name=name, on=on, unit="sequence", loss=loss, live=LIVE, streams=STREAMS, norm=unit_mean, coef=coef)
