"""Noise Contrastive Alignment of Language Models with Explicit Rewards (arXiv 2402.05369)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.learn.terms import preference_lists as lists
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.compositions import ListOptions
from burnish.papers import Paper

NCA = Paper("nca", "2402.05369", "Noise Contrastive Alignment of Language Models with Explicit Rewards")


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
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.nca(beta, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


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
        learn=learn.Learn(lists.nca_rewards(beta, scale, on=replies.author)),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
    )
