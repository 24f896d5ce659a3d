"""Confucius3-Math: A Lightweight High-Performance Reasoning LLM for Chinese K-12 Mathematics Learning (arXiv
2506.18330).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

CONFUCIUS3 = Paper(
    "confucius3-math",
    "2506.18330",
    "Confucius3-Math: A Lightweight High-Performance Reasoning LLM for Chinese K-12 Mathematics Learning",
)

Refills = Annotated[int, Option("How often a step fills up its batch after the filter.", at_least=0)]


@register(
    CONFUCIUS3,
    family="policy",
    summary="GRPO with a penalty for the distance of the entropy from a target, on either side.",
    when="Entropy runs away upwards (mixed languages) or collapses.",
)
def targeted_entropy(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    target: Annotated[float, Option("The entropy to hold, in nats.", at_least=0)] = 0.55,
    coef: Annotated[float, Option("Weight of the distance.", at_least=0)] = 0.001,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """Targeted entropy regularisation (Confucius3-Math, section 6.1), the first stage of its RL.

    L = L_GRPO + coef |H - target|,   H = mean over the tokens of the batch of the policy's entropy

    The gradient of |H - target| is sign(H - target) grad H; the sign is that of the whole batch before the update. coef
    = 0 is GRPO. target 0.55 and coef 0.001 are the paper's.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=score.verify(task),
        credit=chain(
            credit.group_relative(),
            credit.behaviour(),
            credit.ref(),
            credit.streams("policy", "policy", entropy="entropy"),
            credit.entropy_side(target),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean),
            learn.kl_k3(coef=beta, norm=learn.seq_mean),
            learn.entropy_towards(coef=coef),
        ),
        models=roles(ref=frozen("policy")),
    )


@register(
    CONFUCIUS3,
    family="policy",
    summary="DAPO with advantages weighed by hardness, whose surplus groups are used in the next batch.",
    when="Dynamic sampling wastes replies, and hard prompts should count more.",
)
def confucius3(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.28,
    alpha: Annotated[
        float, Option("How the weight of a prompt changes with its mean score.", at_least=-1, at_most=1)
    ] = -0.256,
    offset: Annotated[float, Option("The weight of a prompt of which half is right.", above=0)] = 1.256,
    refills: Refills = 3,
    temperature: opt.Temperature = 1.0,
) -> Method:
    """DAPO with recent sample recovery and policy-specific hardness weighting (Confucius3-Math, sections 6.2 and 6.3).

    R_i = 1 or -1,  mu = mean R,  A_i = (R_i - mu)(alpha mu + offset),  in groups with 0 < right < n
    L = sum over tokens of -min(rho A, clip(rho, 1-eps_low, 1+eps_high) A) / (replies x longest reply)

    A batch begins with the mixed groups that the last one had no room for; whole batches are sampled until it is full
    (at most `refills` more; the paper has no limit). alpha and offset are the paper's: a prompt that is never solved
    weighs 1.512, one that always is 1. pi_old is computed by the trainer before the update, so that recovered replies
    are treated as fresh ones: the paper found no use in importance weights. The clip is DAPO's; the paper prints none.
    """
    drawn, sampled = draw.prompts(task), rollout.sample(n, temperature=temperature)
    scored = score.verify(task)
    store = select.Store("recent", 10_000)
    return method(
        draw=drawn,
        rollout=sampled,
        score=scored,
        select=select.recovered(select.mixed(), drawn, sampled, scored, refills, store),
        credit=chain(credit.by_hardness(alpha, offset), credit.old(), credit.claim("pg", "policy", tag="mixed")),
        learn=learn.Learn(learn.pg_clip(eps_low, eps_high, norm=learn.constant(), on=learn.CLAIMED)),
        models=roles(),
    )
