"""Dataset Reset Policy Optimization for RLHF (arXiv 2404.08495)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, method
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_models
from burnish.papers import Paper

DR_PO = Paper("dr-po", "2404.08495", "Dataset Reset Policy Optimization for RLHF")


@register(
    DR_PO,
    family="hybrid",
    summary="PPO whose replies start at random places of demonstrations.",
    when="Demonstrations are at hand for RLHF: starting in the middle of them makes good states easy to reach.",
    trial={"n": 2, "updates": 1},
)
def dr_po(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    chance: Annotated[float, Option("How often a reply starts inside a demonstration.", at_least=0, at_most=1)] = 1.0,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.1,
    kl: opt.KLPenalty = 0.05,
    gamma: opt.Gamma = 1.0,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 4,
    critic_lr: opt.CriticLR = 1.0,
    reward_model: opt.RewardModel = None,
) -> Method:
    """DR-PO: reset to a state of a demonstration, let the policy finish, PPO on what it wrote.

    with probability chance: keep the first t tokens of y*, t uniform in 1 .. |y*| - 1;  else start from the prompt
    r_t = -kl log(pi/ref)(y_t), plus the score at the last token, divided by their std
    A_t, R_t by GAE(gamma, lam), A whitened
    L = mean over generated tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef mean over all reply tokens of max((V - R)^2, (V_clip - R)^2) / 2

    As in the released code, rewards, GAE, whitening and the critic's loss run over the kept tokens too; only the
    policy's loss leaves them out. The paper resets into unlabelled demonstrations and always resets (chance = 1);
    chance = 0 is PPO. value_coef and updates are those usual for PPO on summaries, not checked against the paper.
    """
    both = ("policy", "demo")
    return method(
        draw=draw.demos(task),
        rollout=rollout.reset(n, rollout.anywhere(chance)),
        score=score.scoring(task, reward_model),
        credit=chain(
            credit.old(logp_temperature="run"),
            credit.ref(logp_temperature="run"),
            credit.streams("critic", value="value"),
            credit.token_rewards(kl=kl, author=both),
            credit.whiten("reward", author=both, centre=False),
            credit.gae(gamma=gamma, lam=lam, author=both),
            credit.whiten(author=both),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps),
            learn.value_clip(value_eps, coef=value_coef, on=both),
            updates=updates,
            logp_temperature="run",
        ),
        models=ppo_models(critic_lr, reward_model),
    )
