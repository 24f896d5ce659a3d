"""Interactive Post-Training for Vision-Language-Action Models, RIPT-VLA (arXiv 2505.17016)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.method import Method, Option, chain, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

RIPT_VLA = Paper("ript-vla", "2505.17016", "Interactive Post-Training for Vision-Language-Action Models")


@register(
    RIPT_VLA,
    family="policy",
    summary="Leave-one-out advantages and PPO's clip on starts from which some replies succeed and some fail.",
    when="A policy acts in an environment that says success or failure, and no critic can be had.",
    example="burnish train ript_vla --model tiny-omni --task reach:1",
    trial={"n": 3},
)
def ript_vla(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps_low: opt.ClipLow = 0.2,
    eps_high: opt.ClipHigh = 0.2,
    refills: Annotated[int, Option("How often a step fills up its batch after the filter.", at_least=0)] = 3,
    updates: opt.Updates = 1,
) -> Method:
    """A_i = r_i - mean of the other n - 1
    L = mean over tokens of -min(rho A, clip(rho, 1 - eps_low, 1 + eps_high) A)

    Starts whose n episodes all succeed or all fail are left out, and others are drawn in their place (C). The authors'
    environments are robots in simulation; here they are games, such as `reach`. Rewards 1, 0, 0 give 1, -1/2, -1/2.
    Without refills and with one update it is `rloo` without KL whose unmixed groups are left out.
    """
    drawn, sampled, scored = draw.prompts(task), rollout.sample(n), score.verify(task)
    return method(
        draw=drawn,
        rollout=sampled,
        score=scored,
        select=select.refilled(select.mixed(), drawn, sampled, scored, refills),
        credit=chain(credit.leave_one_out(), credit.behaviour(), credit.claim("pg", "policy", tag="mixed")),
        learn=learn.Learn(learn.pg_clip(eps_low, eps_high, on=learn.CLAIMED), updates=updates),
        models=roles(),
    )
