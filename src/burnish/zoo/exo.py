"""Towards Efficient and Exact Optimization of Language Model Alignment (arXiv 2402.00856)."""

from __future__ import annotations

import math
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.core.schedules import Schedule
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import list_term, pair_term
from burnish.method import Method, Option, Sampling, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.compositions import ListOptions
from burnish.methods.given_pairs import from_pairs_and_ref
from burnish.papers import Paper

EXO = Paper("exo", "2402.00856", "Towards Efficient and Exact Optimization of Language Model Alignment")


def exo_list(logratio: Tensor, rewards: Tensor, beta: float, beta_reward: float) -> Tensor:
    """EXO with rewards (Ji et al., arXiv 2402.00856): KL( softmax(beta lr) || softmax(r / beta_reward) ).

    The policy's side comes first.
    """
    mine = torch.log_softmax(beta * logratio, 0)
    return (mine.exp() * (mine - torch.log_softmax(rewards.to(mine) / beta_reward, 0))).sum()


def exo_pair(logratio_w: Tensor, logratio_l: Tensor, beta: float, eps: float) -> Tensor:
    """EXO on pairs (Ji et al., arXiv 2402.00856), per pair: the reverse KL between two distributions over {w, l}.

        p = softmax(beta lr_w, beta lr_l),   q = (1 - eps, eps),   L = KL(p || q) = sum p log(p / q)

    The policy's side comes first: it seeks the mode. The forward KL(q || p) is DPO with label smoothing, up to a
    constant.
    """
    if not 0 < eps < 1:
        raise ValueError(f"EXO's eps is {eps}; it must lie between 0 and 1, for at 0 the divergence is infinite")
    margin = beta * (logratio_w - logratio_l)
    first, second = F.logsigmoid(margin), F.logsigmoid(-margin)
    return first.exp() * (first - math.log(1 - eps)) + second.exp() * (second - math.log(eps))


def exo_rewards_term(beta: Schedule, beta_reward: float, *, on: Authors = "policy") -> Term:
    """EXO on the lists, rewards in stream "psi"."""
    return list_term(
        lambda one, beta: exo_list(one.logratio, one["psi"], beta, beta_reward),
        beta=beta,
        marks=("psi",),
        on=on,
    )


def exo_term(beta: Schedule, eps: float, *, on: Authors = "policy") -> Term:
    """The reverse KL between the policy's odds and the smoothed label."""
    return pair_term(lambda w, r, beta: exo_pair(w.logratio, r.logratio, beta, eps), beta=beta, on=on)


@register(
    EXO,
    family="preference",
    summary="Reverse KL between the policy's odds of a pair and a softened label: it seeks the mode.",
    when="As `dpo`, where the policy should drop bad replies rather than cover all good ones.",
)
def exo(
    task: draw.Source,
    *,
    beta: opt.Beta = 0.1,
    eps: Annotated[float, Option("Probability that the label leaves to the rejected reply.", above=0, below=1)] = 1e-3,
) -> Method:
    """EXO on pairs.

    p = softmax(beta lr_w, beta lr_l),  q = (1 - eps, eps),  lr = log pi(y|x) - log ref(y|x)
    L = KL(p || q) = sum p log(p / q),  mean over pairs

    The policy's side comes first. The forward KL(q || p) is DPO with label smoothing eps, up to a constant.
    `exo_rewards` is the same with rewards of several replies.
    """
    return from_pairs_and_ref(task, exo_term(beta, eps, on="demo"))


@register(
    EXO,
    family="preference",
    summary="EXO on several replies with rewards.",
    when="As `exo`, with a reward for each of several replies.",
)
def exo_rewards(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    beta: opt.Beta = 0.5,
    beta_reward: Annotated[float, Option("Temperature of the rewards' distribution.", above=0)] = 0.5,
    reward_model: opt.RewardModel = None,
) -> Method:
    """EXO with rewards.

    p = softmax(beta lr),  q = softmax(r / beta_reward),  lr_i = log pi(y_i|x) - log ref(y_i|x)
    L = KL(p || q),  mean over prompts

    Replies are the reference's. The constants are the authors' for dialogue and summaries.
    """
    replies = ListOptions.of(task, rollout.sample(n, who="ref"), "ref", reward_model)
    return method(
        draw=draw.prompts(task),
        rollout=replies.rollout,
        score=replies.score,
        select=select.whole_lists(),
        credit=chain(credit.ref(logp_temperature=1.0), credit.shared("reward", "psi")),
        learn=learn.Learn(exo_rewards_term(beta, beta_reward, on=replies.author), logp_temperature=1.0),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
        sampling=Sampling(0.8),
    )
