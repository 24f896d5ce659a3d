"""Terms on replies that are right or wrong: tapered REINFORCE, negative-aware fine-tuning, discrimination."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn.maths import reinforce, right_and_wrong
from burnish.learn.norms import Norm, constant, seq_mean, unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.rows import note_drift, row_mean

Score = Callable[[Live], Tensor]


def pg_tapered(*, norm: Norm = seq_mean, coef: Schedule = 1.0, on: Authors = "policy", name: str = "pg") -> Term:
    """TOPR: REINFORCE in which replies of negative "adv" count by their whole ratio to "old", at most 1."""

    def loss(live: Live) -> Tensor:
        weight = right_and_wrong.taper(live.per_row(live.logp - live.old), row_mean(live, live.adv).to(live.logp.dtype))
        live.note("taper", weight[live.row])
        note_drift(live)
        return weight[live.row] * reinforce(live.logp, live.adv)

    return Term(
        name=name,
        on=on,
        unit="token",
        loss=loss,
        live=("logp", "entropy"),
        streams=("adv", "old"),
        norm=norm,
        coef=coef,
    )


def negative_aware(
    eps: float,
    weigh: Callable[[Tensor], Tensor],
    negative: float = 1.0,
    *,
    norm: Norm | None = None,
    on: Authors = "policy",
    name: str = "nft",
) -> Term:
    """NFT: likelihood of right tokens under the policy and of wrong ones under its implicit negative.

    Streams: "right" (1 or 0), "pass_rate" (of the prompt), "old". weigh(pass_rate) weighs prompts, `negative` wrong
    tokens.
    """

    def loss(live: Live) -> Tensor:
        note_drift(live)
        losses = right_and_wrong.implicit_negative(live.logp, live.old, live.right, live.pass_rate, eps)
        return weigh(live.pass_rate) * torch.where(live.right > 0, 1.0, negative) * losses

    streams = ("right", "pass_rate", "old")
    return Term(
        name=name, on=on, unit="token", loss=loss, live=("logp", "entropy"), streams=streams, norm=norm or constant()
    )


def mean_logp(live: Live) -> Tensor:
    """[R]: DisCO's score "logL", the mean log-prob of a reply's tokens."""
    return row_mean(live, live.logp)


def mean_ratio(live: Live) -> Tensor:
    """[R]: DisCO's score "Lratio", the mean of a reply's token ratios."""
    return row_mean(live, (live.logp - live.old).exp())


def discriminate(
    score: Score, tau: float, *reads: str, coef: Schedule = 1.0, on: Authors = "policy", name: str = "rank"
) -> Term:
    """DisCO: within a group, right replies (stream "right") are scored above wrong ones; one number a group.

    `reads` names the streams that the score itself needs ("old", for `mean_ratio`).
    """

    def loss(live: Live) -> Tensor:
        scores, right = score(live), row_mean(live, live.right) > 0.5
        claimed = live.per_row(torch.ones_like(live.right)) > 0
        groups = range(int(live.group.max()) + 1)
        mine = [claimed & (live.group == g) for g in groups]
        return torch.stack([right_and_wrong.discriminate(scores[m & right], scores[m & ~right], tau) for m in mine])

    streams = ("right", *reads)
    return Term(name=name, on=on, unit="group", loss=loss, live=("logp",), streams=streams, norm=unit_mean, coef=coef)


def hold(delta: float, beta: float, *, on: Authors = "policy", name: str = "hold") -> Term:
    """DisCO's constraint KL(pi_old || pi) <= delta on every group, as a squared hinge; the KL is k1's token mean."""

    def loss(live: Live) -> Tensor:
        rows = live.group[live.row]
        size = torch.zeros(int(live.group.max()) + 1, dtype=live.logp.dtype, device=rows.device)
        tokens = size.index_add(0, rows, torch.ones_like(live.logp)).clamp(min=1)
        kl = size.index_add(0, rows, live.old - live.logp) / tokens
        live.note("kl", kl)
        return right_and_wrong.held_hinge(kl, delta, beta)

    return Term(name=name, on=on, unit="group", loss=loss, live=("logp",), streams=("old",), norm=unit_mean)
