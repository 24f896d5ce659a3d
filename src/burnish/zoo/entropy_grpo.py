"""Exploring Superior Function Calls via Reinforcement Learning (arXiv 2508.05118).

Thoughts: the tokens of a reply between <think> and </think>, and a bonus of their entropy.
"""

from __future__ import annotations

import re
from typing import Annotated

import torch
from torch import Tensor

from burnish import credit, draw, learn, rollout, score
from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.method import Method, Option, chain, frozen, method, roles
from burnish.methods import opt, papers, register
from burnish.models.chat import Chat
from burnish.score.segments import tokens_of

METRICS = (("thought_share", "What was sampled", "share of the sampled tokens that are inside of <think>...</think>"),)

_THOUGHT = re.compile(r"<think>(.*?)(?:</think>|\Z)", re.DOTALL)


def thought_tokens(trace: Trace, chat: Chat, author: str = "policy") -> Tensor:
    """[T] bool: the author's tokens inside of <think>...</think>; up to the end where it is not closed."""
    found = torch.zeros(len(trace), dtype=torch.bool)
    for turn, start, _ in trace.spans():
        if turn.author != author:
            continue
        for match in _THOUGHT.finditer(chat.text(turn.tokens)):
            if match[1]:
                first, last = tokens_of(turn.tokens, chat, match.span(1))
                found[start + first : start + last] = True
    return found


@supplies("stream:adv")
def entropy_of_thoughts(alpha: float, kappa: float, *, author: str = "policy", reader: str = "policy") -> Part:
    """A_t <- A_t + min(alpha H_t, |A_t| / kappa) at the tokens of thoughts, H the entropy when they were sampled.

    The bonus has no gradient and never turns the sign of an advantage (kappa > 1). alpha = 0 changes nothing.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat, thought, tokens = step.models[reader].chat, 0, 0
        for trace in (trace for group in groups for trace in group.traces):
            where = thought_tokens(trace, chat, author)
            adv, entropy = trace.streams["adv"], trace.streams["entropy"]
            adv[where] += torch.minimum(alpha * entropy[where], adv[where].abs() / kappa)
            thought, tokens = thought + int(where.sum()), tokens + int(trace.by(author).sum())
        step.notes.add("thought_share", thought, max(1, tokens))
        return groups

    return Part(
        name=f"entropy_of_thoughts({alpha:g}, {kappa:g})",
        call=call,
        reads=frozenset({"stream:adv", "stream:entropy", f"tokens:{author}"}),
        updates=frozenset({"stream:adv"}),
    )


@register(
    papers.ENTROPY_GRPO,
    family="agents",
    summary="GRPO for function calls with a bonus for the entropy of thoughts.",
    when="A model thinks in <think> before it calls functions, and its thoughts become all alike.",
    example="burnish train entropy_grpo --task calls:1 --reward exact_calls --max-new-tokens 96",
)
def entropy_grpo(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    alpha: Annotated[float, Option("Weight of the entropy of a thought's tokens.", at_least=0)] = 0.4,
    kappa: Annotated[float, Option("The bonus is at most |A| / kappa.", above=0)] = 2.0,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    updates: opt.Updates = 1,
) -> Method:
    """Entropy-enhanced GRPO for function calls (FunRL), reconstructed.

    A_t = A + min(alpha H_t, |A| / kappa) at the tokens between <think> and </think>, A elsewhere;  A = GRPO's advantage
    L = mean over replies of mean over tokens of [ -min(rho A_t, clip(rho, 1-eps, 1+eps) A_t) + beta k3 ]
    H_t: the policy's entropy at the token before the update, without gradient

    The paper's bonus could not be read. This one, with alpha = 0.4 and kappa = 2, is that of arXiv 2506.14758
    ("Reasoning with exploration"), restricted to thoughts. alpha = 0 is GRPO. The reward is the task's or --reward;
    `exact_calls` is the paper's kind, `toolrl` a graded one. Left out: data preparation by judges and AST checks.
    """
    return method(
        draw=draw.prompts(task),
        rollout=rollout.sample(n),
        score=score.verify(task),
        credit=chain(
            credit.group_relative(),
            credit.streams("policy", "policy", entropy="entropy"),
            entropy_of_thoughts(alpha, kappa),
            credit.behaviour(),
            credit.ref(),
        ),
        learn=learn.Learn(
            learn.pg_clip(eps, norm=learn.seq_mean), learn.kl_k3(coef=beta, norm=learn.seq_mean), updates=updates
        ),
        models=roles(ref=frozen("policy")),
    )
