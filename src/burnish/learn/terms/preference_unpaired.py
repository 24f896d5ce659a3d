"""Terms on replies that are good or bad by themselves, and on the likelihood of replies without any label."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn.maths import preference_unpaired as maths
from burnish.learn.maths.preference import Replies, logistic
from burnish.learn.norms import unit_mean
from burnish.learn.term import Authors, Live, Term
from burnish.learn.terms.compared import unpaired_term


def kto(beta: Schedule, weight_good: float, weight_bad: float, *, on: Authors = "policy") -> Term:
    """KTO on labelled replies, the reference point in stream "baseline"."""
    return unpaired_term(
        lambda all, beta: maths.kto_value(
            all.logratio, all["label"] > 0, all["baseline"].to(all.logratio), beta, weight_good, weight_bad
        ),
        beta=beta,
        marks=("baseline",),
        on=on,
    )


def bco(beta: Schedule, *, on: Authors = "policy") -> Term:
    """BCO on labelled replies, the running mean in stream "delta" and the prompts' density ratio in "density"."""
    return unpaired_term(
        lambda all, beta: maths.bco_cross_entropy(
            all.logratio, all["label"] > 0, all["delta"].to(all.logratio), all["density"].to(all.logratio), beta
        ),
        beta=beta,
        marks=("delta", "density"),
        on=on,
    )


def transported_replies(beta: Schedule, *, on: Authors = "policy") -> Term:
    """AOT on unpaired replies: each against the held log-ratio of its partner of the other class (stream "partner").

    The mean over pairs of -log s(beta (lr_w - lr_l)) has the gradient of both halves together; the factor 2 makes the
    mean over replies that mean over pairs.
    """

    def loss(all: Replies, beta: float) -> Tensor:
        sign = torch.where(all["label"] > 0, 1.0, -1.0).to(all.logratio)
        return logistic(beta * sign * (all.logratio - all["partner"].to(all.logratio)))

    return unpaired_term(loss, beta=beta, marks=("partner",), coef=2.0, on=on)


def likelihood(*, coef: Schedule, on: Authors, name: str = "bonus") -> Term:
    """log pi(y) of whole replies: with a positive coefficient it is lowered (optimism), with a negative one raised."""

    def loss(live: Live) -> Tensor:
        return live.per_row(live.logp)

    return Term(name=name, on=on, unit="sequence", loss=loss, live=("logp",), norm=unit_mean, coef=coef)


def log_ratio(*, coef: Schedule, on: Authors, anchor: str = "ref", name: str = "bonus") -> Term:
    """log pi(y) - log ref(y) of whole replies: `likelihood` relative to the reference, in stream `anchor`."""

    def loss(live: Live) -> Tensor:
        ratio = live.per_row(live.logp - live.streams[anchor])
        live.note("log_ratio", ratio)
        return ratio

    return Term(
        name=name, on=on, unit="sequence", loss=loss, live=("logp",), streams=(anchor,), norm=unit_mean, coef=coef
    )
