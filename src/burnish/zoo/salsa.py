"""SALSA: Soup-based Alignment Learning for Stronger Adaptation in RLHF (arXiv 2411.01798)."""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score
from burnish.method import Method, Option, method, soup
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit, ppo_models
from burnish.papers import Paper

SALSA = Paper("salsa", "2411.01798", "SALSA: Soup-based Alignment Learning for Stronger Adaptation in RLHF")


@register(
    SALSA,
    family="policy",
    summary="PPO held near the average of two fine-tuned models instead of near its own start.",
    when="You have two fine-tuned models and fear that a single reference is too narrow to explore around.",
    trial={"n": 2, "updates": 1, "other": "tiny"},
)
def salsa(
    task: draw.Source,
    *,
    other: Annotated[str, Option("The second model's name or directory.")],
    share: Annotated[float, Option("The second model's share in the soup.", at_least=0, at_most=1)] = 0.5,
    n: opt.Replies = 1,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.05,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """SALSA: PPO whose reference is a soup.

    theta_ref = (1 - share) theta_start + share theta_other, two models fine-tuned apart from one base; else `ppo`:
    r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token

    share = 0 is PPO. The PPO constants are `ppo`'s, the paper does not print all of its own. The paper finds a
    share of 0.5 best.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.scoring(task, reward_model),
        credit=ppo_credit(kl, lam, gamma=gamma),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
        models=ppo_models(critic_lr, reward_model, ref=soup("base", other, share)),
    )
