"""KDRL: Post-Training Reasoning LLMs via Unified Knowledge Distillation and Reinforcement Learning (arXiv
2506.02208).
"""

from __future__ import annotations

from typing import Annotated

from burnish import credit, draw, learn, rollout, score
from burnish.core.schedules import linear
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

KDRL = Paper(
    "kdrl",
    "2506.02208",
    "KDRL: Post-Training Reasoning LLMs via Unified Knowledge Distillation and Reinforcement Learning",
)

_DISTILLED = {"all": lambda trace, group: True, "wrong": credit.is_wrong, "unsolved": credit.is_unsolved}


@register(
    KDRL,
    family="hybrid",
    summary="GRPO with a pull to a teacher instead of a reference.",
    when="You have both a teacher and a verifier, and want to learn from the two at once.",
)
def kdrl(
    task: draw.Source,
    *,
    teacher: opt.Teacher,
    n: opt.GroupSize = 8,
    beta: Annotated[float, Option("Weight of distillation at the start.", at_least=0)] = 5e-3,
    beta_end: Annotated[float, Option("Weight of distillation after `beta_steps` steps.", at_least=0)] = 1e-3,
    beta_steps: Annotated[int, Option("Steps in which the weight of distillation falls.", at_least=1)] = 80,
    distilled: Annotated[
        str,
        Option(
            "The replies that are distilled: unsolved are those to prompts that no reply of the group solved.",
            choices=("all", "wrong", "unsolved"),
        ),
    ] = "all",
    eps: opt.ClipRange = 0.2,
) -> Method:
    """KDRL: one loss of GRPO and reverse-KL distillation, both on the student's own samples.

    L = L_GRPO + beta mean over sampled tokens of k2,   k2 = (log pi - log p_teacher)^2 / 2
    L_GRPO: clipped surrogate, A_i = (r_i - mean) / (std + 1e-6), mean over sampled tokens, no KL to a reference
    beta falls on a line, max(beta - 5e-5 step, beta_end) with the defaults

    k2 has the gradient of the reverse KL on the student's samples (k3 has not). In the paper the masks ("wrong":
    response level, "unsolved": group level) and the falling beta are separate variants: with a mask, set beta_end
    to beta. Tokens that are not distilled stay in the average.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(
            credit.group_relative(),
            credit.behaviour(),
            credit.streams("teacher", logp="teacher"),
            credit.distilled_where(_DISTILLED[distilled], distilled),
        ),
        learn=learn.Learn(learn.pg_clip(eps), learn.teacher_k2(coef=linear(beta, beta_end, over=beta_steps))),
        models=roles(teacher=frozen(teacher)),
    )
