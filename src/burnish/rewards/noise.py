"""Shapes that damage the reward on purpose, to see how much of it a method needs."""

from __future__ import annotations

from typing import Annotated, Literal

from burnish.core import randomness
from burnish.core.method import Option, Step
from burnish.rewards import Scorer, register_shape
from burnish.rewards.shaped import Scored, of_group
from burnish.tasks.source import Source

Per = Annotated[Literal["prompt", "reply"], Option("What is flipped: all replies to a prompt together, or each reply.")]


@register_shape(
    summary="Flip the reward of a share of the prompts, or of the replies: r' = 1 - r.",
    when="To measure how much noise in the verifier a method endures.",
    example="burnish train grpo --shape 'flip(0.4)'",
    trial={"share": 0.4},
)
def flip(
    task: Source,
    share: Annotated[float, Option("The chance of a flip; 0 leaves the reward unchanged.", at_least=0, at_most=1)],
    per: Per = "prompt",
) -> Scorer:
    """r' = 1 - r with chance `share`, for rewards of 0 and 1 (arXiv 2505.22653).

    The paper's released code flips all replies to a prompt together, which is `per=prompt`. For a group baseline that
    is another noise than flips of single replies: a group of wrong replies alone stays silent. Which prompts or replies
    are flipped is new in each step, and follows from the run's seed.
    """

    def change(scored: Scored, step: Step) -> list[float]:
        clock, key = step.clock, scored.group.task.key
        chances = [
            randomness.rng(clock.seed, "flip", clock.step, key, None if per == "prompt" else trace.index).random()
            for trace in scored.traces
        ]
        return [1 - r if chance < share else r for r, chance in zip(scored.rewards, chances, strict=True)]

    return of_group(f"flip({share:g})", change, coef=share)
