"""KDRL: Post-Training Reasoning LLMs via Unified Knowledge Distillation and Reinforcement Learning (arXiv
2506.02208).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

import torch

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.schedules import Schedule, linear
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.learn import maths
from burnish.learn.norms import Norm, token_mean
from burnish.learn.term import Authors, Live, Term
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, register
from burnish.papers import Paper

KDRL = Paper(
    "kdrl",
    "2506.02208",
    "KDRL: Post-Training Reasoning LLMs via Unified Knowledge Distillation and Reinforcement Learning",
)


@supplies("stream:kd_weight")
def distilled_where(rule: Callable[[Trace, Group], bool], name: str) -> Part:
    """kd_weight = 1 on every token of the traces for which the rule holds, 0 on the others."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        kept = float(rule(trace, group))
        trace.streams["kd_weight"] = torch.full((len(trace),), kept)
        step.notes.add("distilled", kept)

    return per_trace(
        write,
        name=f"distilled_where({name})",
        reads=frozenset({"score:reward"}),
        writes=frozenset({"stream:kd_weight"}),
    )


def is_wrong(trace: Trace, group: Group) -> bool:
    """A reply that is not correct."""
    return not trace.scores["correct"]


def is_unsolved(trace: Trace, group: Group) -> bool:
    """A reply to a task that no reply of its group solved."""
    return not any(other.scores["correct"] for other in group.traces)


def teacher_k2(*, coef: Schedule, norm: Norm = token_mean, on: Authors = "policy", name: str = "kd") -> Term:
    """k2 to the teacher (stream "teacher") at the sampled tokens, each times stream "kd_weight".

    Its gradient on the policy's own samples is that of the reverse KL(pi || teacher). A token of weight 0 still counts
    in the average.
    """

    def loss(live: Live) -> torch.Tensor:
        live.note("reverse_kl", live.logp - live.teacher)
        return live.kd_weight * maths.k2(live.logp, live.teacher)

    streams = ("teacher", "kd_weight")
    return Term(name=name, on=on, unit="token", loss=loss, live=("logp",), streams=streams, norm=norm, coef=coef)


_DISTILLED = {"all": lambda trace, group: True, "wrong": is_wrong, "unsolved": is_unsolved}


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
        Literal["all", "wrong", "unsolved"],
        Option(
            "The replies that are distilled: unsolved are those to prompts that no reply of the group solved.",
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
            credit.teacher_logp(),
            distilled_where(_DISTILLED[distilled], distilled),
        ),
        learn=learn.Learn(learn.pg_clip(eps), teacher_k2(coef=linear(beta, beta_end, over=beta_steps))),
        models=roles(teacher=frozen(teacher)),
    )
