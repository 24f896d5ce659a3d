"""Direct Preference-based Policy Optimization without Reward Modeling (arXiv 2301.12842)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score, select
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, method, roles
from burnish.methods import register
from burnish.papers import Paper

DIRECT_PREFERENCE_PPO = Paper(
    "direct-preference-ppo", "2301.12842", "Direct Preference-based Policy Optimization without Reward Modeling"
)


@register(
    DIRECT_PREFERENCE_PPO,
    family="preference",
    summary="Contrast the likelihoods of a pair, the worse one with less weight.",
    when="Reference-free pairs, where rejected replies should not be pushed down as hard.",
)
def direct_preference_ppo(
    task: draw.Source,
    *,
    lam: Annotated[float, Option("Weight of the rejected reply's score.", at_least=0, at_most=1)] = 1.0,
    scale: Annotated[float, Option("Temperature of the contrast.", above=0)] = 0.1,
) -> Method:
    """DPPO: direct preference-based policy optimisation, adapted to language models.

    S(y) = log pi(y|x) / |y|;  L = -log[ e^(S(y_w)/scale) / (e^(S(y_w)/scale) + e^(lam S(y_l)/scale)) ],  mean

    The paper controls robots: its score is minus the mean distance between the policy's actions and a segment's, and a
    preference predictor labels more segments. Here the score is the mean log-prob of the reply, and labels are given.
    lam and scale are the defaults of the authors' code. lam = 1 is SimPO with beta = 1/scale and no margin.
    """
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        learn=learn.Learn(pairs.conservative(lam, scale, on="demo")),
        models=roles(),
        lr_share=0.1,
    )
