"""Preference Ranking Optimization for Human Alignment (arXiv 2306.17492)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import Part, chain, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import list_term
from burnish.learn.terms.rows import row_mean
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.compositions import ListOptions
from burnish.papers import Paper

PRO = Paper("pro", "2306.17492", "Preference Ranking Optimization for Human Alignment")


def pro_ranking(mean: Tensor, rewards: Tensor) -> Tensor:
    """PRO (Song et al., arXiv 2306.17492): a Plackett-Luce loss whose temperatures are the reward gaps.

        L = sum over k < K of -log[ e^(m_k / T_kk) / sum over i >= k of e^(m_i / T_ki) ]
        1 / T_ki = r_k - r_i for i > k,   1 / T_kk = max over i > k of r_k - r_i

    m is the mean log-prob of a token. Replies with equal rewards exclude nothing: their places k add 0 and are left
    out.
    """
    total = mean.sum() * 0
    for k in range(len(mean) - 1):
        gaps = (rewards[k] - rewards[k + 1 :]).to(mean)
        largest = gaps.max()
        if largest <= 0:
            continue
        scaled = torch.cat([(mean[k] * largest)[None], mean[k + 1 :] * gaps])
        total = total + torch.logsumexp(scaled, 0) - scaled[0]
    return total


def reward_ranking(*, on: Authors = "policy") -> Term:
    """PRO's ranking on the lists, rewards in stream "psi"."""
    return list_term(
        lambda one, _: pro_ranking(one.logp, one["psi"]), anchor=None, reduce=row_mean, marks=("psi",), on=on
    )


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
            reward_ranking(on=replies.author),
            learn.imitate_weighted(coef=sft, norm=learn.seq_sum_mean, on=learn.CLAIMED),
        ),
        models=roles(**start, **score.rm_role(reward_model)),
        lr_share=0.1,
    )
