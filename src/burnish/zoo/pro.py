"""Preference Ranking Optimization for Human Alignment (arXiv 2306.17492)."""

from __future__ import annotations

from typing import Annotated

import torch

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import Part, chain, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.learn.terms import preference_lists as lists
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.compositions import ListOptions
from burnish.papers import Paper

PRO = Paper("pro", "2306.17492", "Preference Ranking Optimization for Human Alignment")


@supplies("stream:weight")
def list_weights() -> Part:
    """Stream "weight": (K - 1)^2 on all tokens of a reply, K the replies in its list."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        trace.streams["weight"] = torch.full((len(trace),), float(len(group.traces) - 1) ** 2)

    return per_trace(write, name="list_weights", reads=frozenset({"lists"}), writes=frozenset({"stream:weight"}))


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
    sft: Annotated[
        float, Option("Weight of imitating the best reply, times (K - 1)^2 for a list of K.", at_least=0)
    ] = 0.05,
    reward_model: opt.RewardModel = None,
) -> Method:
    """PRO.

    m_i = log pi(y_i|x) / |y_i|, best first;  1/T_ki = r_k - r_i,  1/T_kk = max over i > k of r_k - r_i
    L = sum over k < K of -log[ e^(m_k/T_kk) / sum over i >= k of e^(m_i/T_ki) ] + sft (K - 1)^2 (-log pi(y_1|x))

    Mean over prompts; K is the length of the prompt's own list. The imitation is summed over tokens while the scores
    are means, as in the authors' code. Where the data has no ranked replies, n are sampled from the starting policy.
    Equal rewards exclude nothing.
    """
    sampled = rollout.sample(n, who="start")
    replies = ListOptions.of(task, sampled, "start", reward_model)
    start = {"start": frozen("policy")} if replies.author == "start" else {}
    return method(
        draw=draw.prompts(task),
        rollout=replies.rollout,
        score=replies.score,
        select=select.unequal_lists(),
        credit=chain(credit.shared("reward", "psi"), list_weights(), credit.claim("sft", replies.author, tag="best")),
        learn=learn.Learn(
            lists.reward_ranking(on=replies.author),
            learn.imitate_weighted(coef=sft, norm=learn.seq_sum_mean, on=learn.CLAIMED),
        ),
        models=roles(**start, **score.rm_role(reward_model)),
        lr_share=0.1,
    )
