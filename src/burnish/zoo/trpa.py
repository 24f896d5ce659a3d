"""Trust Region Preference Approximation: A simple and stable reinforcement learning algorithm for LLM reasoning
(arXiv 2504.04524).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.learn.terms import preference_pairs as pairs
from burnish.learn.terms.policy import kl_to
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

TRPA = Paper(
    "trpa",
    "2504.04524",
    "Trust Region Preference Approximation: A simple and stable reinforcement learning algorithm for LLM reasoning",
)


@register(
    TRPA,
    family="preference",
    summary="Online DPO on every pair of different levels (right, answered, neither), in a trust region.",
    when="Verifiable tasks, where rules rank replies and the size of a reward should not matter.",
)
def trpa(
    task: draw.Source,
    *,
    n: opt.GroupSize = 16,
    beta: opt.Beta = 0.1,
    anisotropy: Annotated[float, Option("Factor of beta where the better reply is right.", above=0)] = 2.5,
    kl: opt.KLCoef = 0.001,
) -> Method:
    """TRPA.

    levels: right, a wrong answer, no answer;  m(y) = mean over tokens of log pi - log ref
    L = mean over pairs of different levels of -log s( c beta [m(y_w) - m(y_l)] ) + kl x token mean of k3(pi, pi_old)

    c = anisotropy where y_w is right, else 1. The constants are the authors'. Their code has a fourth level (cut
    off), and a loss on single replies for micro-batches without a pair; here such prompts are dropped.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=chain(score.verify(task), score.partial_for_answering(0.1)),
        select=select.every_pair("shaped"),
        credit=chain(credit.behaviour(), credit.ref(), credit.factor_of_right(anisotropy, score="shaped")),
        learn=learn.Learn(pairs.levelled(beta), kl_to("old", coef=kl)),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )
