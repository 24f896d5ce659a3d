"""Is Reinforcement Learning (Not) for Natural Language Processing: Benchmarks, Baselines, and Building Blocks
(arXiv 2210.01241).
"""

from __future__ import annotations

from typing import Annotated

import torch

from burnish import credit, draw, learn, rollout, score
from burnish.core.schedules import Schedule
from burnish.engine.mixture import Blend, masked_by
from burnish.learn import maths
from burnish.learn.maths.policy import was_clipped
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term
from burnish.method import Method, Option, chain, method, snapshot
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit, ppo_models
from burnish.papers import Paper

NLPO = Paper(
    "nlpo",
    "2210.01241",
    "Is Reinforcement Learning (Not) for Natural Language Processing: Benchmarks, Baselines, and Building Blocks",
)


def pg_clip_blended(
    eps: float, blend: Blend, *, norm: Norm = token_mean, coef: Schedule = 1.0, on: Authors = "policy", name: str = "pg"
) -> Term:
    """PPO's clip on the log-probs of a blend with one other model: the ratio is of what was really sampled from.

    Reads whole distributions (logits of both models at every claimed token) and stream "token"; "old" is the blend's
    log-prob at sampling.
    """
    (other,) = blend.others

    def loss(live: Live) -> torch.Tensor:
        mixed = torch.log_softmax(blend.mix([live.logits, live.outputs[f"{other}.logits"]]), -1)
        logp = mixed.gather(-1, live.token[:, None])[:, 0]
        live.note("clipped", was_clipped(logp, live.old, live.adv, eps, eps))
        live.note("old_kl", maths.k3(logp, live.old))
        return maths.clipped_surrogate(logp, live.old, live.adv, eps, eps)

    needs = ("logits", f"{other}.logits")
    return Term(
        name=name, on=on, unit="token", loss=loss, live=needs, streams=("adv", "old", "token"), norm=norm, coef=coef
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
    mask = masked_by("mask", mask_top_p)
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n, blend=mask),
        score=score.scoring(task, reward_model),
        credit=chain(credit.token_ids(), ppo_credit(kl, lam, gamma=gamma)),
        learn=learn.Learn(pg_clip_blended(eps, mask), learn.value_clip(value_eps, coef=value_coef), updates=updates),
        models=ppo_models(critic_lr, reward_model, mask=snapshot("policy", every=mask_every)),
        sampling=None,
    )
