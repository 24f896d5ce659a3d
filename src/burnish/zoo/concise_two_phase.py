"""Concise Reasoning via Reinforcement Learning (arXiv 2504.05185)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.method import Method, Option, Phase, chain
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit, ppo_models
from burnish.methods.compositions import from_share, until_share
from burnish.papers import Paper
from burnish.select.outcomes import keep_groups

CONCISE_TWO_PHASE = Paper("concise-two-phase", "2504.05185", "Concise Reasoning via Reinforcement Learning")


@supplies("tag:solvable")
def solvable() -> Part:
    """Only groups with at least one right reply, tagged "solvable"."""
    return keep_groups("solvable", lambda right, n: right > 0)


@register(
    CONCISE_TWO_PHASE,
    family="policy",
    summary="PPO, then a little more PPO on a few solvable problems, which shortens replies.",
    when="A trained reasoner should become shorter with little more training and without a length reward.",
)
def concise_two_phase(
    task: draw.Source,
    *,
    n: opt.Replies = 8,
    first_share: Annotated[float, Option("Share of the run's steps in the first phase.", at_least=0, at_most=1)] = 0.8,
    few_tasks: Annotated[int, Option("Problems of the second phase.", at_least=1)] = 8,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 0.5,
    kl: opt.KLPenalty = 0.0,
    lam: Annotated[float, Option("GAE's lambda.", at_least=0, below=1)] = 0.95,
    updates: opt.Updates = 1,
    critic_lr: opt.CriticLR = 1.0,
) -> Method:
    """Two phases of the same PPO: for ability on all problems, then for brevity on a few that are sometimes solved.

    With lam < 1 the average loss of a token falls with length where the return is negative and rises where it is
    positive: problems that are never solved lengthen replies, solved ones shorten them. No length enters a reward.
    r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token;  A_t, R_t by GAE(1, lam), A whitened
    L = mean over tokens of -min(rho A, clip(rho, 1-eps, 1+eps) A)
      + value_coef mean over tokens of max((V - R)^2, (V_clip - R)^2) / 2

    The second phase draws the same few tasks again and again, and leaves out those that no reply solves. The
    paper's own constants were not found: the second phase is the run's last fifth, the rest is `ppo`'s.
    """
    ability = Phase(
        name="ability",
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=ppo_credit(kl, lam),
        learn=learn.Learn(learn.pg_clip(eps), learn.value_clip(value_eps, coef=value_coef), updates=updates),
        times=until_share(first_share),
    )
    brevity = Phase(
        name="brevity",
        draw=draw.few(task, few_tasks),
        rollout=rollout.sample(n),
        score=score.verify(task),
        select=solvable(),
        credit=chain(
            ppo_credit(kl, lam),
            credit.claim("pg", "policy", tag="solvable"),
            credit.claim("value", "policy", tag="solvable"),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps, on=learn.CLAIMED),
            learn.value_clip(value_eps, coef=value_coef, on=learn.CLAIMED),
            updates=updates,
        ),
        times=from_share(first_share),
    )
    return Method(models=ppo_models(critic_lr), phases=(ability, brevity))
