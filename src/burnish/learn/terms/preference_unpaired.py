"""Terms on replies that are good or bad by themselves, and on the likelihood of replies without any label."""

from __future__ import annotations

from torch import Tensor

from burnish.core.schedules import Schedule
from burnish.learn.maths import preference_unpaired as maths
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
