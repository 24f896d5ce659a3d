"""Preference Ranking Optimization for Human Alignment (arXiv 2306.17492)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.learn.terms import preference_lists as lists
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.compositions import ListOptions
from burnish.papers import Paper

PRO = Paper("pro", "2306.17492", "Preference Ranking Optimization for Human Alignment")


@register(
    PRO,
    family="preference",
    summary="A ranking loss whose temperatures are reward gaps, and imitation of the best reply.",
    when="Ranked replies of any number, no reference model.",
)
def pro(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    sft: Annotated[float, Option("Weight of imitating the best reply, times (n - 1)^2.", at_least=0)] = 0.05,
    reward_model: opt.RewardModel = None,
) -> Method:
    """PRO.

    m_i = log pi(y_i|x) / |y_i|, best first;  1/T_ki = r_k - r_i,  1/T_kk = max over i > k of r_k - r_i
    L = sum over k < n of -log[ e^(m_k/T_kk) / sum over i >= k of e^(m_i/T_ki) ] + sft (n - 1)^2 (-log pi(y_1|x))

    Mean over prompts. The imitation is summed over tokens while the scores are means, as in the authors' code.
    Where the data has no ranked replies they are sampled from the starting policy. Equal rewards exclude nothing.
    """
    sampled = rollout.sample(n, who="start")
    replies = ListOptions.of(task, sampled, "start", reward_model)
    start = {"start": frozen("policy")} if replies.author == "start" else {}
    return method(
        draw=draw.prompts(task),
        rollout=replies.rollout,
        score=replies.score,
        select=select.unequal_lists(),
        credit=chain(credit.shared("reward", "psi"), credit.claim("sft", replies.author, tag="best")),
        learn=learn.Learn(
            lists.reward_ranking(on=replies.author),
            learn.imitate(coef=sft * (n - 1) ** 2, norm=learn.seq_sum_mean, on=learn.CLAIMED),
        ),
        models=roles(**start, **score.rm_role(reward_model)),
        lr_share=0.1,
    )
