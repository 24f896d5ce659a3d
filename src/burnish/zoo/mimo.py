"""MiMo: Unlocking the Reasoning Potential of Language Model -- From Pretraining to Posttraining (arXiv
2505.07608).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, papers, register

Refills = Annotated[int, Option("How often a step fills up its batch after the filter.", at_least=0)]


@register(
    papers.MIMO,
    family="policy",
    summary="DAPO without a length punishment, whose solved problems rest in a pool and come back seldom.",
    when="Many problems are solved by now, and sampling them again is wasted; forgetting them is not wanted either.",
)
def mimo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    alpha: Annotated[float, Option("Chance of a slot to come from the pool.", at_least=0, at_most=1)] = 0.1,
    refills: Refills = 3,
    minibatches: opt.Minibatches = 4,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """The RL of MiMo-7B (section 3.3): GRPO without KL, dynamic sampling, a higher upper clip, and an easy data pool.

    A_i = (r_i - mean r) / std r in groups with 0 < right < n;   L = mean over tokens of -min(rho A, clip(rho) A)
    a problem whose replies are all right goes into the pool; a slot is drawn from the pool with chance alpha, else from
    the other problems

    alpha = 0.1 is the paper's, which prints neither n nor the clip, and makes 16 updates of a batch. A problem that is
    drawn from the pool and no longer solved leaves it: the natural reading.
    """
    pool = draw.EasyPool()
    drawn, sampled = draw.apart_from_easy(task, pool, alpha), rollout.sample(n, temperature=temperature)
    scored = chain(score.verify(task), draw.note_solved(pool))
    return method(
        draw=drawn,
        rollout=sampled,
        score=scored,
        select=select.refilled(select.mixed(), drawn, sampled, scored, refills),
        credit=chain(credit.group_relative(), credit.behaviour(), credit.claim("pg", "policy", tag="mixed")),
        learn=learn.Learn(
            learn.pg_clip(eps_low, eps_high, norm=learn.token_mean, on=learn.CLAIMED), minibatches=minibatches
        ),
        models=roles(),
    )
