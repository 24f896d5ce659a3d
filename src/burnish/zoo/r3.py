"""Training Large Language Models for Reasoning through Reverse Curriculum Reinforcement Learning (arXiv
2402.05808).
"""

from __future__ import annotations

import random
from typing import Annotated

from torch import Tensor

from burnish import draw, learn, rollout, score
from burnish.core.types import Clock
from burnish.method import Method, Option, chain, method
from burnish.methods import Arguments, opt, register, variant
from burnish.methods.actor_critic import ppo_credit, ppo_models
from burnish.models.chat import Chat
from burnish.papers import Paper
from burnish.rollout.resets import Cut, line_ends

R3 = Paper(
    "r3", "2402.05808", "Training Large Language Models for Reasoning through Reverse Curriculum Reinforcement Learning"
)

_Stages = Annotated[int, Option("Pieces of a demonstration.", at_least=1)]
_Partial = Annotated[float, Option("Reward of a wrong answer.", at_least=0, at_most=1)]


def any_stage(stages: int) -> Cut:
    """One of `stages` start states, each as likely: the prompt, or the end of one of the first stages -
    1 pieces (R3).
    """
    return lambda tokens, chat, clock, dice: stage_starts(tokens, chat, stages)[dice.randrange(stages)]


def sliding_stage(stages: int) -> Cut:
    """The start state slides back over the run, from the last piece's to the prompt: one stage after the other (staged
    R3).
    """

    def cut(tokens: Tensor, chat: Chat, clock: Clock, dice: random.Random) -> int:
        stage = min(stages - 1, clock.step * stages // max(1, clock.of))
        return stage_starts(tokens, chat, stages)[stages - 1 - stage]

    return cut


def stage_starts(tokens: Tensor, chat: Chat, stages: int) -> list[int]:
    """Where `stages` pieces of a reply begin: 0, then floor(k length / stages), each moved back to the end of the last
    line that ended since the cut before, where one did: a piece is whole steps wherever steps are lines."""
    if stages < 1:
        raise ValueError(f"stages is {stages}; a reply has at least 1 piece")
    ends = line_ends(tokens, chat)
    starts = [0]
    for k in range(1, stages):
        here = k * len(tokens) // stages
        starts.append(max((end for end in ends if starts[-1] < end <= here), default=max(here, starts[-1])))
    return [min(start, len(tokens) - 1) for start in starts]


def from_demonstrations(
    task: draw.Source,
    *,
    n: opt.Replies = 1,
    cut: Cut,
    partial: _Partial = 0.2,
    eps: opt.ClipRange = 0.2,
    value_eps: opt.ValueClipRange = 0.2,
    value_coef: opt.ValueCoef = 5.0,
    kl: opt.KLPenalty = 0.05,
    lam: opt.Lam = 0.95,
    updates: opt.Updates = 2,
    critic_lr: opt.CriticLR = 1.0,
) -> Method:
    """PPO on replies that begin as a demonstration does, as far as `cut` says."""
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


@register(
    R3,
    family="hybrid",
    summary="PPO from start states all along the demonstrations, mixed: a reverse curriculum.",
    when="Rewards come only at the end and are too rare from the prompt, but demonstrations lead there.",
    trial={"n": 2, "updates": 1},
)
@variant(from_demonstrations)
def r3(*, stages: _Stages = 6) -> Arguments:
    """R3: a demonstration is cut into `stages` pieces; a reply starts after the first k, k uniform in 0 .. stages - 1.

    score = 1 where right, `partial` where wrong but an answer is stated, else 0
    r_t = -kl log(pi_old/ref)(y_t), plus the score at the last token;  A_t, R_t by GAE(1, lam), A whitened
    L = mean over replies of mean over generated tokens of [ -min(rho A, clip(rho) A)
      + value_coef max((V - R)^2, (V_clip - R)^2) / 2 ]

    The constants are those of the released mathematics runs; `partial` is the released code's. Pieces are of equal
    length in tokens, their ends moved back to the end of a line where one lies in the piece; their number is a
    choice of ours.
    """
    return {"cut": any_stage(stages)}


@register(
    R3,
    family="hybrid",
    summary="PPO whose start states slide from the end of the demonstrations to the prompt.",
    when="As `r3`, when stages should follow each other instead of being mixed.",
    trial={"n": 2, "updates": 1},
)
@variant(from_demonstrations)
def r3_staged(*, stages: _Stages = 6) -> Arguments:
    """Staged R3: as `r3`, but all replies start after the first k pieces, k = stages - 1, ..., 0 over the run.

    The paper's first form, which it improves on by mixing the stages. Each stage has the same number of steps.
    """
    return {"cut": sliding_stage(stages)}
