"""Iterative Nash Policy Optimization: Aligning LLMs with General Preferences via No-Regret Learning (arXiv
2407.00617).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.core.roles import snapshot
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

INPO = Paper(
    "inpo",
    "2407.00617",
    "Iterative Nash Policy Optimization: Aligning LLMs with General Preferences via No-Regret Learning",
)

Eta = Annotated[float, Option("Step size of the game.", above=0)]
ROUND = {"n": 4, "sync": 1}


@register(
    INPO,
    family="preference",
    summary="Mirror descent against the last round's policy, regularised to the reference: a Nash policy.",
    when="General preferences, without estimating win rates.",
    trial=ROUND,
)
def inpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eta: Eta = 0.005,
    share: Annotated[float, Option("The reference's share of the anchor, tau / eta.", at_least=0, at_most=1)] = 1 / 3,
    sync: opt.Sync = 1 / 3,
    reward_model: opt.RewardModel = None,
) -> Method:
    """INPO.

    h = log pi(y_w)/pi(y_l) - (tau/eta) log ref(y_w)/ref(y_l) - ((eta - tau)/eta) log pi_t(y_w)/pi_t(y_l)
    L = p (h - 1/(2 eta))^2 + (1 - p) (-h - 1/(2 eta))^2,  mean over pairs;  y_1..y_n ~ pi_t, w and l the best and worst

    pi_t is the policy at the start of the round. eta, tau = eta / 3 and n are the paper's (three rounds). p = P(w > l)
    is 1, or the chance by a --preference, with which the paper draws the label. With one, w and l win most and least
    within the group, where the paper holds a tournament; n = 2 is its Algorithm 1. share = 1 is IPO on the samples of
    pi_t, with tau = eta.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, who="past"),
        score=score.scoring(task, reward_model, author="past"),
        select=select.best_vs_worst(),
        credit=chain(credit.ref(), credit.streams("past", logp="past"), credit.pair_preference(credit.by_comparison)),
        learn=learn.Learn(pairs.against_population(1 / (2 * eta), {"ref": share, "past": 1 - share}, on="past")),
        models=roles(ref=frozen("policy"), past=snapshot("policy", sync), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
