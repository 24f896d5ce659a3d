"""Secrets of RLHF in Large Language Models Part I: PPO (arXiv 2307.04964)."""

from __future__ import annotations

from typing import Annotated, Any

from burnish import credit, draw, learn, rollout, score
from burnish.core.schedules import after, before
from burnish.method import Method, Option, Phase, Sampling, chain, frozen, roles, trained
from burnish.methods import opt, register
from burnish.methods.actor_critic import anchors
from burnish.papers import Paper

PPO_MAX = Paper("ppo-max", "2307.04964", "Secrets of RLHF in Large Language Models Part I: PPO")


@register(
    PPO_MAX,
    family="policy",
    summary="PPO held stable: normalised and clipped scores, a KL penalty, a critic trained first.",
    when="RLHF with a reward model of uncertain scale, when plain PPO is unstable.",
    trial={"n": 4, "critic_warmup": 0},
)
def ppo_max(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    kl: opt.KLPenalty = 0.05,
    limit: Annotated[float, Option("The largest normalised score.", above=0)] = 0.8,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    critic_warmup: Annotated[int, Option("Steps in which the critic alone is trained.", at_least=0)] = 50,
    critic_lr: opt.CriticLR = 3.0,
    updates: opt.Updates = 1,
    reward_model: opt.RewardModel = None,
) -> Method:
    """PPO-max: the paper's choice among the tricks of RLHF.

    score~ = clip((score - mean) / std, +-limit), mean and std of all scores so far
    r_t = -kl log(pi_old/ref)(y_t), plus score~ at the last token;   A_t, R_t by GAE(gamma, lam)
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + mean over tokens of max((V - R)^2, (V_clip - R)^2) / 2
    First `critic_warmup` steps: the critic alone, on the same returns.

    The critic starts from the reward model where one is given. Gradient clipping is the run's own. Departure: no
    pre-training loss is mixed in; its weight is 0 in the released scripts. kl = 0.05 is the paper's (the released
    script: 0.01), limit = 0.8 that of its comparisons; it prints no number for the critic's warm-up.
    """
    moments = score.Moments("scores")
    stages: dict[str, Any] = {
        "draw": draw.prompts(task),
        "rollout": rollout.sample(n),
        "score": chain(score.scoring(task, reward_model), score.normalised(moments, limit)),
    }
    rewards = chain(anchors(), credit.token_rewards(score="normal", kl=kl))
    learn_value = Phase(
        name="critic",
        times=before(critic_warmup),
        credit=chain(rewards, credit.lambda_returns(gamma=gamma, lam=lam)),
        learn=learn.Learn(learn.value_clip(value_eps)),
        **stages,
    )
    main = Phase(
        times=after(critic_warmup),
        credit=chain(rewards, credit.gae(gamma=gamma, lam=lam)),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps), updates=updates),
        **stages,
    )
    critic = trained(reward_model or "base", outputs=1, lr=critic_lr)
    return Method(
        models=roles(ref=frozen("policy"), critic=critic, **score.rm_role(reward_model)),
        phases=(learn_value, main),
        sampling=Sampling(0.8),
    )
