"""Terms on whole replies: regression of reward differences, pairwise surrogates, replies weighed by a held ratio."""

from __future__ import annotations

from burnish.core.schedules import Schedule
from burnish.learn.maths.sequence import relative_reward_error
from burnish.learn.norms import Norm, unit_mean
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import pair_term


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
