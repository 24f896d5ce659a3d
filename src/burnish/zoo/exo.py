"""Towards Efficient and Exact Optimization of Language Model Alignment (arXiv 2402.00856)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score, select
from burnish.core.parts import chain
from burnish.learn.terms import preference_lists as lists
from burnish.learn.terms import preference_pairs as pairs
from burnish.method import Method, Option, Sampling, frozen, method, roles
from burnish.methods import opt, register
from burnish.methods.compositions import ListOptions
from burnish.papers import Paper

EXO = Paper("exo", "2402.00856", "Towards Efficient and Exact Optimization of Language Model Alignment")


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
    return method(
        draw=draw.pairs(task),
        rollout=rollout.given("chosen", "rejected"),
        score=score.given_order("chosen", "rejected"),
        select=select.best_vs_worst(),
        credit=credit.cached_ref(task),
        learn=learn.Learn(pairs.exo(beta, eps, on="demo")),
        models=roles(ref=frozen("policy")),
        lr_share=0.1,
    )


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
        learn=learn.Learn(lists.exo_rewards(beta, beta_reward, on=replies.author), logp_temperature=1.0),
        models=roles(ref=frozen("policy"), **score.rm_role(reward_model)),
        lr_share=0.1,
        sampling=Sampling(0.8),
    )
