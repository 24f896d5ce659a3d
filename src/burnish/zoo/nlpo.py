"""Is Reinforcement Learning (Not) for Natural Language Processing: Benchmarks, Baselines, and Building Blocks
(arXiv 2210.01241).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.method import Method, Option, chain, method, snapshot
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit, ppo_models
from burnish.papers import Paper

NLPO = Paper(
    "nlpo",
    "2210.01241",
    "Is Reinforcement Learning (Not) for Natural Language Processing: Benchmarks, Baselines, and Building Blocks",
)


@register(
    NLPO,
    family="policy",
    summary="PPO that samples only tokens which a slowly renewed copy of the policy finds likely.",
    when="Free sampling wanders into tokens that never pay; the vocabulary can be cut to the likely ones.",
    trial={"n": 2, "updates": 1, "mask_every": 1},
)
def nlpo(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    mask_top_p: Annotated[float, Option("Probability that the allowed tokens hold.", above=0, at_most=1)] = 0.9,
    mask_every: Annotated[int, Option("Steps between two copies of the masking policy.", at_least=1)] = 20,
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
    """Natural language policy optimisation: PPO whose actions are masked.

    pi_psi: a copy of the policy, renewed every mask_every steps
    V(s) = the smallest set of tokens with sum over V of pi_psi(v|s) >= mask_top_p;   y_t ~ pi(.|s) restricted to V(s)
    and then PPO as in `ppo`, with all log-probs of the policy those of the restricted distribution

    The policy answers as it was trained only where the mask stays: sampled freely, it may say what was never
    allowed. mask_top_p = 1 is PPO.
    """
    mask = rollout.masked_by("mask", mask_top_p)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, blend=mask),
        score=score.scoring(task, reward_model),
        credit=chain(credit.token_ids(), ppo_credit(kl, lam, gamma=gamma)),
        learn=learn.Learn(
            learn.pg_clip_blended(eps, mask), learn.value_clip(value_eps, coef=value_coef), updates=updates
        ),
        models=ppo_models(critic_lr, reward_model, mask=snapshot("policy", every=mask_every)),
        sampling=None,
    )
