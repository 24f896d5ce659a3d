"""Terms on whole replies: regression of reward differences, pairwise surrogates, replies weighed by a held ratio."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn.maths.sequence import held_ratio, relative_reward_error
from burnish.learn.norms import Norm, unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.compared import pair_term

PairSurrogate = Callable[[Tensor, Tensor, Tensor, float], Tensor]  # (logratio_a, logratio_b, adv, eps) -> [P]


def regress_rewards(
    scale: float,
    *,
    anchor: str,
    norm: Norm = unit_mean,
    coef: Schedule = 1.0,
    on: Authors = "policy",
    name: str = "pair",
) -> Term:
    """Squared error between scaled log-ratio differences and reward differences, for the pairs.

    anchor  the stream of log-probs that the policy is compared to ("old", "ref"); a reply's reward is the sum of stream
            "reward"
    """

    return pair_term(
        lambda a, b, scale: relative_reward_error(a.logratio, b.logratio, a["reward"], b["reward"], scale),
        beta=scale,
        anchor=anchor,
        streams=("reward",),
        notes=lambda a, b, _: {"gap": a["reward"] - b["reward"]},
        norm=norm,
        coef=coef,
        on=on,
        name=name,
    )


def pg_pair(
    surrogate: PairSurrogate, eps: float, *, coef: Schedule = 1.0, on: Authors = "policy", name: str = "pair"
) -> Term:
    """A pairwise policy gradient: A = half the difference of the replies' summed stream "reward", anchored on "old"."""

    return pair_term(
        lambda a, b, _: surrogate(a.logratio, b.logratio, (a["reward"] - b["reward"]) / 2, eps),
        anchor="old",
        streams=("reward",),
        notes=lambda a, b, _: {"odds": (a.logratio - b.logratio).exp()},
        coef=coef,
        on=on,
        name=name,
    )


def pg_sequence_ratio(eps: float, *, coef: Schedule = 1.0, on: Authors = "policy", name: str = "pg") -> Term:
    """-w A log pi(y) for each reply, w the held, clipped ratio pi/ref of the whole reply (A-LoL); A is stream "adv"."""

    def loss(live: Live) -> torch.Tensor:
        weight = held_ratio(live.per_row(live.logp - live.ref), eps)
        live.note("ratio", weight)
        return -weight * live.per_row(live.adv * live.logp)

    return Term(
        name=name, on=on, unit="sequence", loss=loss, live=("logp",), streams=("adv", "ref"), norm=unit_mean, coef=coef
    )


def pg_token_ratio(eps: float, *, coef: Schedule = 1.0, on: Authors = "policy", name: str = "pg") -> Term:
    """-A sum_t w_t log pi(y_t) for each reply, w_t the held, clipped ratio pi/ref of the token (A-LoL seq.)."""

    def loss(live: Live) -> torch.Tensor:
        weight = held_ratio(live.logp - live.ref, eps)
        return live.per_row(-live.adv * weight * live.logp)

    return Term(
        name=name, on=on, unit="sequence", loss=loss, live=("logp",), streams=("adv", "ref"), norm=unit_mean, coef=coef
    )
