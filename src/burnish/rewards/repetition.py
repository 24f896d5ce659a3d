"""Shapes and rewards against repetition."""

from __future__ import annotations

import math
from typing import Annotated

import torch

from burnish import papers
from burnish.core.method import Group, Option, Part, Step
from burnish.rewards import DENSE, Scorer, register_reward, register_shape
from burnish.rewards.lengths import Weight
from burnish.rewards.shaped import Scored, of_group
from burnish.score.maths.repetition import in_repeated, repeated_share
from burnish.tasks.source import Source


@register_shape(
    summary="A reply loses the share of its n-grams that repeat earlier ones.",
    when="Replies fall into loops.",
    example="burnish train grpo --shape 'repetition(0.5, n=4)'",
)
def repetition(
    task: Source,
    weight: Weight = 1.0,
    n: Annotated[int, Option("Tokens of an n-gram.", at_least=1)] = 3,
) -> Scorer:
    """r - weight (1 - distinct / all n-grams of the reply's tokens); a reply of fewer than n tokens loses nothing."""

    def change(scored: Scored, step: Step) -> list[float]:
        tokens = [trace.tokens[trace.by("policy")].tolist() for trace in scored.traces]
        return [r - weight * repeated_share(own, n) for r, own in zip(scored.rewards, tokens, strict=True)]

    return of_group(f"repetition({weight:g}, n={n})", change, coef=weight)


@register_reward(
    papers.COSINE_LENGTH,
    summary="-1 at every token that is part of a repeated n-gram.",
    when="Loops should be punished where they happen: PPO and other methods with token rewards.",
    example="burnish train ppo --reward 'math,repeated_tokens(40)*0.05'",
)
def repeated_tokens(task: Source, n: Annotated[int, Option("Tokens of an n-gram.", at_least=1)] = 40) -> Scorer:
    """r_t = -1 where token t is part of an n-gram that occurred before in the reply, else 0; with weight 0.05.

    The dense penalty of "Demystifying Long Chain-of-Thought Reasoning" (arXiv 2502.03373; N = 40, P = -0.05): all n
    tokens of the later occurrence get the penalty once (assigned, not added). Departure: the paper discounts it by
    its own factor; here it is added to the token rewards, which the method discounts.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for trace in (trace for group in groups for trace in group.traces):
            mask = trace.by("policy")
            stream = torch.full((len(trace),), math.nan)
            stream[mask] = -torch.tensor(in_repeated(trace.tokens[mask].tolist(), n), dtype=torch.float32)
            trace.streams[DENSE + "repeated_tokens"] = stream
        return groups

    part = Part(
        name=f"repeated_tokens({n})",
        call=call,
        reads=frozenset({"tokens:policy"}),
        writes=frozenset({f"stream:{DENSE}repeated_tokens"}),
    )
    return Scorer(part=part, dense=True)
