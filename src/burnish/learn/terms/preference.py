"""Terms on pairs of replies: each is a loss of learn/maths/preference.py in a `pair_term`."""

from __future__ import annotations

from burnish.core.schedules import Schedule
from burnish.learn import maths
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term


def dpo(
    beta: Schedule,
    *,
    label_smoothing: float = 0.0,
    anchor: str = "ref",
    coef: Schedule = 1.0,
    on: Authors = "policy",
    name: str = "reply",
) -> Term:
    """DPO's logistic loss on the pairs, with stream "ref" (or another, `anchor`) as the reference."""
    return pair_term(
        lambda chosen, rejected, beta: maths.dpo_logistic(chosen.logratio, rejected.logratio, beta, label_smoothing),
        beta=beta,
        anchor=anchor,
        coef=coef,
        on=on,
        name=name,
    )
