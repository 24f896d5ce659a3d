"""Terms on pairs of replies."""

from __future__ import annotations

import torch

from burnish.learn import maths
from burnish.learn.norms import unit_mean
from burnish.learn.term import Live, Term
from burnish.schedules import Schedule, at


def dpo(beta: Schedule, *, label_smoothing: float = 0.0, coef: Schedule = 1.0, name: str = "reply") -> Term:
    """DPO's logistic loss on the pairs, with stream "ref" as the reference."""

    def loss(live: Live) -> torch.Tensor:
        logratio = live.per_row(live.logp - live.ref)
        w, l = logratio[live.pairs[:, 0]], logratio[live.pairs[:, 1]]  # noqa: E741
        live.note("margin", at(beta, live.clock) * (w - l))
        live.note("accuracy", (w > l).float())
        return maths.dpo_logistic(w, l, at(beta, live.clock), label_smoothing)

    return Term(name=name, unit="pair", loss=loss, live=("logp",), streams=("ref",), norm=unit_mean, coef=coef)


def score_pairs(*, centre: float = 0.0, trainee: str = "rm", coef: Schedule = 1.0, name: str = "end") -> Term:
    """Bradley-Terry on the scores at the claimed token (one a trace)."""

    def loss(live: Live) -> torch.Tensor:
        score = live.per_row(live.score)
        w, l = score[live.pairs[:, 0]], score[live.pairs[:, 1]]  # noqa: E741
        live.note("margin", w - l)
        live.note("accuracy", (w > l).float())
        return maths.bradley_terry(w, l, centre)

    return Term(name=name, unit="pair", loss=loss, live=("score",), norm=unit_mean, trainee=trainee, coef=coef)
