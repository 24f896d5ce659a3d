"""MA-RLHF: Reinforcement Learning from Human Feedback with Macro Actions (arXiv 2410.02743)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, method
from burnish.methods import opt, register
from burnish.methods.actor_critic import anchors, ppo_models
from burnish.papers import Paper

MA_RLHF = Paper("ma-rlhf", "2410.02743", "MA-RLHF: Reinforcement Learning from Human Feedback with Macro Actions")


@register(
    MA_RLHF,
    family="policy",
    summary="PPO whose values and advantages belong to runs of tokens.",
    when="Token-level credit is too noisy for your replies, and words or phrases are better units.",
    trial={"n": 4, "length": 3},
)
def ma_rlhf(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    cut: Annotated[
        str, Option("How a reply is cut into macro actions.", choices=("fixed", "random", "perplexity"))
    ] = "fixed",
    length: Annotated[int, Option("Tokens in a macro action of a fixed cut.", at_least=1)] = 5,
    repeats: Annotated[int, Option("How often a random cut uses each of 1, 2, 3, 5 and 10.", at_least=1)] = 3,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    kl: opt.KLPenalty = 0.05,
    gamma: Annotated[float, Option("Discount per macro action.", at_least=0, at_most=1)] = 1.0,
    lam: opt.Lam = 0.95,
    limit: Annotated[float, Option("The largest score.", above=0)] = 2.5,
    updates: opt.Updates = 1,
    critic_lr: opt.CriticLR = 1.0,
    temperature: opt.Temperature = 0.8,
    reward_model: opt.RewardModel = None,
) -> Method:
    """PPO over macro actions tau: runs of tokens (the last token is a macro of its own).

    r_t = -kl log(pi_old/ref)(y_t), plus the score, cut to +-limit, at the last token
    r_tau = mean r_t,  V_tau = mean V_t over tau;   A_tau, R_tau by GAE over macros, shared by their tokens
    L = mean over tokens of -min(rho A, clip(rho) A) + mean over tokens of max((V - R)^2, (V_clip - R)^2) / 2

    length = 1 is PPO (without whitening). This is the released code; the paper's equations sum the rewards of a
    macro where the code averages them, and clip one ratio per macro where the code clips every token's. Of the
    paper's four ways to cut three are here; the one by constituents needs a parser. With perplexity a macro begins
    where the next token surprises the reference more.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, temperature=temperature),
        score=chain(score.scoring(task, reward_model), score.clipped(limit)),
        credit=chain(
            anchors(),
            credit.token_rewards(score="clipped", kl=kl),
            credit.macro_gae(length, cut=cut, repeats=repeats, gamma=gamma, lam=lam),
        ),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps), updates=updates),
        models=ppo_models(critic_lr, reward_model),
    )
