"""Training Large Language Models for Reasoning through Reverse Curriculum Reinforcement Learning (arXiv
2402.05808).
"""

from __future__ import annotations

from typing import Annotated

from burnish import draw, learn, rollout, score
from burnish.method import Method, Option, chain, method
from burnish.methods import opt, register
from burnish.methods.actor_critic import ppo_credit, ppo_models
from burnish.papers import Paper

R3 = Paper(
    "r3", "2402.05808", "Training Large Language Models for Reasoning through Reverse Curriculum Reinforcement Learning"
)

_Stages = Annotated[int, Option("Pieces of a demonstration.", at_least=1)]
_Partial = Annotated[float, Option("Reward of a wrong answer.", at_least=0, at_most=1)]


@register(
    R3,
    family="hybrid",
    summary="PPO from start states all along the demonstrations, mixed: a reverse curriculum.",
    when="Rewards come only at the end and are too rare from the prompt, but demonstrations lead there.",
    trial={"n": 2, "updates": 1},
)
def r3(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    stages: _Stages = 6,
    partial: _Partial = 0.2,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 5.0,
    kl: opt.KLPenalty = 0.05,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 2,
    critic_lr: opt.CriticLR = 1.0,
) -> Method:
    """R3: a demonstration is cut into `stages` pieces; a reply starts after the first k, k uniform in 0 .. stages - 1.

    score = 1 where right, `partial` where wrong but an answer is stated, else 0
    r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token;  A_t, R_t by GAE(1, lam), A whitened
    L = mean over replies of mean over generated tokens of [ -min(rho A, clip(rho) A)
      + value_coef max((V - R)^2, (V_clip - R)^2) / 2 ]

    The constants are those of the released mathematics runs; `partial` is the released code's. Pieces are of equal
    length in tokens, their ends moved back to the end of a line where one lies in the piece; their number is a
    choice of ours.
    """
    cut = rollout.any_stage(stages)
    return _r3(task, n, cut, partial, eps, value_eps, value_coef, kl, lam, updates, critic_lr)


@register(
    R3,
    family="hybrid",
    summary="PPO whose start states slide from the end of the demonstrations to the prompt.",
    when="As `r3`, when stages should follow each other instead of being mixed.",
    trial={"n": 2, "updates": 1},
)
def r3_staged(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    stages: _Stages = 6,
    partial: _Partial = 0.2,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 5.0,
    kl: opt.KLPenalty = 0.05,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 2,
    critic_lr: opt.CriticLR = 1.0,
) -> Method:
    """Staged R3: as `r3`, but all replies start after the first k pieces, k = stages - 1, ..., 0 over the run.

    The paper's first form, which it improves on by mixing the stages. Each stage has the same number of steps.
    """
    cut = rollout.sliding_stage(stages)
    return _r3(task, n, cut, partial, eps, value_eps, value_coef, kl, lam, updates, critic_lr)


def _r3(
    task: draw.Source,
    n: int,
    cut: rollout.Cut,
    partial: float,
    eps: float,
    value_eps: float,
    value_coef: float,
    kl: float,
    lam: float,
    updates: int,
    critic_lr: float,
) -> Method:
    return method(
        draw=draw.demos(task),
        rollout=rollout.reset(n, cut),
        score=chain(score.verify(task), score.partial_for_answering(partial)),
        credit=ppo_credit(kl, lam, score="shaped"),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean),
            learn.value_clip(value_eps, coef=value_coef, norm=learn.seq_mean),
            updates=updates,
        ),
        models=ppo_models(critic_lr),
    )
