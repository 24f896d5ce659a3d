"""Rewards from models that score replies."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from burnish import papers
from burnish.core.method import Option, frozen
from burnish.rewards import MEASURED, Scorer, register_reward
from burnish.score.heads import Over, Places, aggregated, every_token, step_ends
from burnish.score.model import only_score
from burnish.score.reading import last_token
from burnish.tasks.source import Source

PLACES: dict[str, Places] = {"end": last_token, "steps": step_ends, "tokens": every_token}
OVER: dict[str, Over] = {
    "last": lambda scores: scores[-1],
    "mean": lambda scores: scores.mean(0),
    "min": lambda scores: scores.min(0).values,
    "sum": lambda scores: scores.sum(0),
}


@register_reward(
    papers.BRADLEY_TERRY_RM,
    summary="The score of a reward model at the last token of a reply, at its lines or at all its tokens.",
    when="You have trained a reward model (burnish train reward_model), or have one for sequence classification.",
    example="burnish train grpo --reward 'rm(runs/DIR/model)'",
    trial={"model": "tiny"},
)
def rm(
    task: Source,
    model: str,
    *,
    at: Annotated[str, Option("Where it scores: end, steps (line ends) or tokens.", choices=tuple(PLACES))] = "end",
    over: Annotated[str, Option("How these scores become one: last, mean, min or sum.", choices=tuple(OVER))] = "last",
) -> Scorer:
    """r(x, y): the number that the model in a directory gives at the last token of prompt and reply.

    at=steps: at the end of each line of the reply, at=tokens: at each of its tokens; `over` makes one number of them.
    """

    def single(scores: Tensor) -> Tensor:
        return torch.tensor([only_score(row, "rm") for row in scores], dtype=torch.float64)

    part = aggregated(("rm",), single, places=PLACES[at], over=OVER[over], name=f"{MEASURED}rm")
    return Scorer(part=part, models={"rm": frozen(model, outputs=1)})
