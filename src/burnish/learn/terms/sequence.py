"""Terms on whole replies: regression of reward differences, pairwise surrogates, replies weighed by a held ratio."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from burnish.learn.maths.sequence import held_ratio, relative_reward_error
from burnish.learn.norms import unit_mean
from burnish.learn.term import Live, Term
from burnish.schedules import Schedule

PairSurrogate = Callable[[Tensor, Tensor, Tensor, float], Tensor]  # (logratio_a, logratio_b, adv, eps) -> [P]


def regress_rewards(scale: float, *, anchor: str, coef: Schedule = 1.0, name: str = "pair") -> Term:
    """Squared error between scaled log-ratio differences and reward differences, for the pairs.

    anchor  the stream of log-probs that the policy is compared to ("old", "ref"); a reply's reward is the sum of stream "reward"
    """

    def loss(live: Live) -> torch.Tensor:
        logratio, reward = live.per_row(live.logp - live.streams[anchor]), live.per_row(live.reward)
        a, b = live.pairs[:, 0], live.pairs[:, 1]
        live.note("margin", scale * (logratio[a] - logratio[b]))
        live.note("gap", reward[a] - reward[b])
        return relative_reward_error(logratio[a], logratio[b], reward[a], reward[b], scale)

    return Term(
        name=name, unit="pair", loss=loss, live=("logp",), streams=(anchor, "reward"), norm=unit_mean, coef=coef
    )


def pg_pair(surrogate: PairSurrogate, eps: float, *, coef: Schedule = 1.0, name: str = "pair") -> Term:
    """A pairwise policy gradient: A = half the difference of the replies' summed stream "reward", anchored on "old"."""

    def loss(live: Live) -> torch.Tensor:
        logratio, reward = live.per_row(live.logp - live.old), live.per_row(live.reward)
        a, b = live.pairs[:, 0], live.pairs[:, 1]
        live.note("odds", (logratio[a] - logratio[b]).exp())
        return surrogate(logratio[a], logratio[b], (reward[a] - reward[b]) / 2, eps)

    return Term(name=name, unit="pair", loss=loss, live=("logp",), streams=("old", "reward"), norm=unit_mean, coef=coef)


def pg_sequence_ratio(eps: float, *, coef: Schedule = 1.0, name: str = "pg") -> Term:
    """-w A log pi(y) for each reply, w the held, clipped ratio pi/ref of the whole reply (A-LoL); A is stream "adv"."""

    def loss(live: Live) -> torch.Tensor:
        weight = held_ratio(live.per_row(live.logp - live.ref), eps)
        live.note("ratio", weight)
        return -weight * live.per_row(live.adv * live.logp)

    return Term(
        name=name, unit="sequence", loss=loss, live=("logp",), streams=("adv", "ref"), norm=unit_mean, coef=coef
    )


def pg_token_ratio(eps: float, *, coef: Schedule = 1.0, name: str = "pg") -> Term:
    """-A sum_t w_t log pi(y_t) for each reply, w_t the held, clipped ratio pi/ref of the token (A-LoL seq.)."""

    def loss(live: Live) -> torch.Tensor:
        weight = held_ratio(live.logp - live.ref, eps)
        return live.per_row(-live.adv * weight * live.logp)

    return Term(
        name=name, unit="sequence", loss=loss, live=("logp",), streams=("adv", "ref"), norm=unit_mean, coef=coef
    )
