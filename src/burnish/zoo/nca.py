"""Noise Contrastive Alignment of Language Models with Explicit Rewards (arXiv 2402.05369)."""

from __future__ import annotations

from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.core.schedules import Schedule
from burnish.learn.term import Authors, Term
from burnish.learn.terms.compared import list_term, pair_term
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.compositions import ListOptions
from burnish.methods.given_pairs import from_pairs_and_ref
from burnish.papers import Paper

NCA = Paper("nca", "2402.05369", "Noise Contrastive Alignment of Language Models with Explicit Rewards")


def nca_list(logratio: Tensor, rewards: Tensor, beta: float, temperature: float) -> Tensor:
    """NCA with explicit rewards (Chen et al., arXiv 2402.05369): -sum c_i log s(r_i) - (1/K) sum log s(-r_i).

    c = softmax(reward / temperature), r_i = beta lr_i. K = 2 and temperature -> 0 is `nca_pair`.
    """
    implicit = beta * logratio
    share = torch.softmax(rewards.to(implicit) / temperature, 0)
    return -(share * F.logsigmoid(implicit)).sum() - F.logsigmoid(-implicit).mean()


def nca_pair(logratio_w: Tensor, logratio_l: Tensor, beta: float) -> Tensor:
    """NCA on pairs (Chen et al., arXiv 2402.05369), per pair: -log s(r_w) - [log s(-r_w) + log s(-r_l)] / 2.

    Noise contrastive estimation of the reward itself, not of differences: the preferred reply's likelihood cannot fall.
    """
    chosen, rejected = beta * logratio_w, beta * logratio_l
    return -F.logsigmoid(chosen) - (F.logsigmoid(-chosen) + F.logsigmoid(-rejected)) / 2


def nca_rewards_term(beta: Schedule, temperature: float, *, on: Authors = "policy") -> Term:
    """NCA on the lists, rewards in stream "psi"."""
    return list_term(
        lambda one, beta: nca_list(one.logratio, one["psi"], beta, temperature),
        beta=beta,
        marks=("psi",),
        on=on,
    )


def nca_term(beta: Schedule, *, on: Authors = "policy") -> Term:
    """NCA's classification of each reply of a pair against noise."""
    return pair_term(lambda w, r, beta: nca_pair(w.logratio, r.logratio, beta), beta=beta, on=on)


@register(
    NCA,
    family="preference",
    summary="Classify each reply of a pair against noise, so that the chosen reply's likelihood does not fall.",
    when="DPO lowers the likelihood of chosen replies too.",
)
def nca(task: draw.Source, *, beta: opt.Beta = 0.01) -> Method:
    """NCA on pairs.

    r = beta [log pi(y|x) - log ref(y|x)]
    L = -log s(r_w) - [log s(-r_w) + log s(-r_l)] / 2,  mean over pairs

    beta = 0.01 is the authors'. `nca_rewards` is the same with explicit rewards of several replies.
    """
    return from_pairs_and_ref(task, nca_term(beta, on="demo"))


@register(
    NCA,
    family="preference",
    summary="NCA on several replies with explicit rewards.",
    when="As `nca`, with a reward for each of several replies.",
)
def nca_rewards(
    task: draw.Source,
    *,
    n: opt.GroupSize = 4,
    beta: opt.Beta = 0.01,
    scale: Annotated[float, Option("Temperature of the softmax over rewards.", above=0)] = 1e-3,
    reward_model: opt.RewardModel = None,
) -> Method:
    """NCA with rewards.

    r_i = beta [log pi(y_i|x) - log ref(y_i|x)];  c = softmax(reward / scale)
    L = -sum c_i log s(r_i) - (1/n) sum log s(-r_i),  mean over prompts

    Replies are the reference's. Two replies and scale -> 0 are `nca`. scale is the default of the authors' code.
    """
    replies = ListOptions.of(task, rollout.sample(n, who="ref"), "ref", reward_model)
    return method(
        draw=draw.prompts(task),
        rollout=replies.rollout,
        score=replies.score,
        select=select.whole_lists(),
        credit=chain(credit.ref(), credit.shared("reward", "psi")),
        learn=learn.Learn(nca_rewards_term(beta, scale, on=replies.author)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
