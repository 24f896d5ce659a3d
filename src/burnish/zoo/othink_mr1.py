"""OThink-MR1: multimodal generalized reasoning via dynamic reinforcement learning (arXiv 2503.16081)."""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.schedules import linear
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

OTHINK_MR1 = Paper(
    "othink-mr1",
    "2503.16081",
    "OThink-MR1: Stimulating multimodal generalized reasoning capabilities via dynamic reinforcement learning",
)


@register(
    OTHINK_MR1,
    family="policy",
    summary="GRPO whose KL grows in the course of the run: explore first, hold on later.",
    when="A constant KL is either too loose at the end or too tight at the start.",
    trial={"n": 3},
)
def othink_mr1(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: Annotated[float, Option("Weight of the KL at the start.", at_least=0)] = 0.0,
    beta_end: Annotated[float, Option("Weight of the KL at the end.", at_least=0)] = 0.04,
) -> Method:
    """L = GRPO's, with beta_t = beta + (beta_end - beta) t / (T - 1) at step t = 0 ... T - 1.

    That the weight rises to a cap is the paper's; the straight line and its ends are ours (R). With beta_end = beta it
    is `grpo`.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(credit.group_relative(), credit.behaviour(), credit.ref()),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean),
            learn.kl_k3(coef=linear(beta, beta_end), norm=learn.seq_mean),
        ),
        models=roles(ref=frozen("policy")),
    )
