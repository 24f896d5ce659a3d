"""AAPO: Enhance the Reasoning Capabilities of LLMs with Advantage Momentum (arXiv 2505.14264).

Advantages that also say how far the policy has come from a reference's own replies (AAPO, arXiv 2505.14264).
"""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score
from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.credit.baselines import spread
from burnish.credit.components import normalised
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

AAPO = Paper("aapo", "2505.14264", "AAPO: Enhance the Reasoning Capabilities of LLMs with Advantage Momentum")


def group_plus_margin(
    *, low: float, high: float, tag: str = "reference", score: str = "reward", eps: float = 1e-4
) -> Part:
    """A_i = (r_i - mean r) / (std r + eps) + clip(r_i - r'_i, low, high), r'_i the score of the i-th tagged reply.

    Tagged replies are the reference's, as many as there are samples. The margin is not 0 where all samples score the
    same, so that such groups still teach. low = high = 0 is GRPO's advantage.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            theirs = [trace for trace in group.traces if tag in trace.tags]
            mine = [trace for trace in group.traces if tag not in trace.tags]
            relative = normalised([trace.scores[score] for trace in mine], eps)
            for trace, other, advantage in zip(mine, theirs, relative, strict=True):
                margin = max(low, min(high, trace.scores[score] - other.scores[score]))
                spread(trace, advantage + margin)
                step.notes.add("margin", margin)
            for trace in theirs:
                spread(trace, float("nan"))
        return groups

    return Part(
        name="group_plus_margin",
        call=call,
        reads=frozenset({f"score:{score}", f"tag:{tag}"}),
        writes=frozenset({"stream:adv"}),
    )


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
    reward_model: opt.RewardModel = None,
) -> Method:
    """AAPO: advantages with momentum (in later versions of the paper: with a margin).

    A_i = (r_i - mean r) / (std r + 1e-4) + clip(r_i - r'_i, margin_low, margin_high)
    L = mean over tokens of -A_i log pi(y_t | .)

    r'_i is the score of the i-th of n replies that the starting policy gives to the same prompt. No ratio, no clip,
    no KL.
    """
    theirs = rollout.sample(n, who="ref", tag="reference")
    return method(
        draw=draw.prompts(task),
        rollout=rollout.join(rollout.sample(n), theirs),
        score=score.scoring(task, reward_model),
        credit=group_plus_margin(low=margin_low, high=margin_high),
        learn=learn.Learn(learn.pg_reinforce(norm=learn.token_mean)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
    )
