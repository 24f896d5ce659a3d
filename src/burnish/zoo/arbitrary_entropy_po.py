"""Arbitrary Entropy Policy Optimization: Entropy Is Controllable in Reinforcement Fine-tuning (arXiv 2510.08141)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

ARBITRARY_ENTROPY_PO = Paper(
    "arbitrary-entropy-po",
    "2510.08141",
    "Arbitrary Entropy Policy Optimization: Entropy Is Controllable in Reinforcement Fine-tuning",
)


@register(
    ARBITRARY_ENTROPY_PO,
    family="policy",
    summary="Good replies sampled hotter or cooler than the policy hold its entropy at a target.",
    when="Entropy collapses or runs away in your runs, and you want to hold it at a chosen level.",
)
def aepo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 5,
    target: Annotated[float, Option("The entropy to hold; the authors' best run has 0.75.", at_least=0)] = 0.5,
    hot: Annotated[float, Option("Temperature while entropy is too low.", above=0)] = 1.2,
    cool: Annotated[float, Option("Temperature while entropy is too high.", above=0)] = 0.8,
    share: Annotated[float, Option("Share of prompts with tempered replies.", at_least=0, at_most=1)] = 0.25,
    above: Annotated[float, Option("Least advantage of a tempered reply that is learned from.")] = 0.05,
    most: Annotated[int, Option("Most tempered replies in a batch.", at_least=0)] = 60,
    eps: opt.ClipRange = 0.2,
    dual: opt.DualClip = 3.0,
    updates: opt.Updates = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """AEPO: GRPO, with part of the batch replaced by good samples of a tempered policy.

    grad J = grad J_GRPO + alpha E_{y ~ pi^T}[ R(y) grad log pi(y) ],   T = hot where H <= target, else cool
    H = -mean log pi of the tokens of the last update (0 at the start)

    As in the authors' trainer: n replies at temperature T to a quarter of the prompts; those whose advantage among
    them exceeds `above` take the place of the batch's first plain samples, min(most, their number) of them (half of
    that, rounded down, where H > target), with advantage 1, in the same loss: mean over tokens of -min(rho A,
    clip(rho) A) with the dual clip, pi_old at temperature 1. So alpha is the share of replaced replies. Plain
    samples: A = (r - mean) / (std + 1e-6) in their group. No KL.
    """
    meter = rollout.EntropyMeter(target, hot, cool)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.join(rollout.sample(n), rollout.tempered(n, meter, share=share)),
        score=score.scoring(task, reward_model),
        credit=chain(
            credit.group_relative(peers=lambda trace, group: "tempered" in trace.tags),
            credit.old(logp_temperature=1.0),
            credit.swap_in_tempered(meter, above=above, most=most),
            credit.claim("pg", "policy", tag="trained"),
        ),
        learn=learn.Learn(learn.pg_clip(eps, dual=dual, on=learn.CLAIMED), updates=updates, logp_temperature=1.0),
        models=roles(**score.rm_role(reward_model)),
    )
