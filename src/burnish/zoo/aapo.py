"""AAPO: Enhance the Reasoning Capabilities of LLMs with Advantage Momentum (arXiv 2505.14264)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

AAPO = Paper("aapo", "2505.14264", "AAPO: Enhance the Reasoning Capabilities of LLMs with Advantage Momentum")


@register(
    AAPO,
    family="policy",
    summary="The group advantage plus how far each reply beats one of the reference's.",
    when="Groups often tie: a comparison with the starting policy still says something when their own spread does not.",
)
def aapo(
    task: draw.Source,
    *,
    n: Annotated[
        int, Option("Replies sampled for each prompt, by the policy and by the reference each.", at_least=2)
    ] = 6,
    margin_low: Annotated[float, Option("The least margin.")] = -0.2,
    margin_high: Annotated[float, Option("The greatest margin.")] = 0.28,
    temperature: opt.Temperature = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """AAPO: advantages with momentum (in later versions of the paper: with a margin).

    A_i = (r_i - mean r) / (std r + 1e-4) + clip(r_i - r'_i, margin_low, margin_high)
    L = mean over tokens of -A_i log pi(y_t | .)

    r'_i is the score of the i-th of n replies that the starting policy gives to the same prompt. No ratio, no clip,
    no KL.
    """
    theirs = rollout.sample(n, temperature=temperature, who="ref", tag="reference")
    return method(
        draw=draw.prompts(task),
        rollout=rollout.join(rollout.sample(n, temperature=temperature), theirs),
        score=score.scoring(task, reward_model),
        credit=credit.group_plus_margin(low=margin_low, high=margin_high),
        learn=learn.Learn(learn.pg_reinforce(norm=learn.token_mean)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )
