"""Enhancing Visual Grounding for GUI Agents via Self-Evolutionary Reinforcement Learning (arXiv 2505.12370)."""

from __future__ import annotations

import math
from functools import partial
from typing import Annotated

from burnish import draw
from burnish.method import Method, Option
from burnish.methods import opt, register
from burnish.methods.compositions import judge_grpo
from burnish.papers import Paper
from burnish.score.compared import Said, compared
from burnish.tasks.pictures.page import SIDE_UNITS, read

SE_GUI = Paper(
    "se-gui",
    "2505.12370",
    "Enhancing Visual Grounding for GUI Agents via Self-Evolutionary Reinforcement Learning",
)


def dense(place: tuple[float, float], centre: tuple[float, float], side: float) -> float:
    """1 - (d / d_max)^2, d the distance to the centre and d_max that of the farthest corner of the picture."""
    most = max(math.dist(centre, (x, y)) for x in (0.0, side) for y in (0.0, side))
    return max(0.0, 1 - (math.dist(place, centre) / most) ** 2)


def reward(said: Said, weight: float) -> float | None:
    """Hit, distance and format for references that are places; for others the verifier's score."""
    wanted, done = read(said.reference), read(said.answer)
    if wanted is None or wanted[0] == "scroll":
        return None
    if done is None or done[0] != wanted[0]:
        return float(done is not None)
    return float(said.right) + weight * dense(done[1:3], wanted[1:3], SIDE_UNITS) + 1.0


@register(
    SE_GUI,
    family="policy",
    summary="GRPO on clicks that are paid for being near as well as for hitting.",
    when="Clicks on a screen miss so often that hits alone teach too little (`page`).",
    example="burnish train se_gui --model tiny-omni --task page:1",
    trial={"n": 3},
)
def se_gui(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    weight: Annotated[float, Option("Of the distance; 0: hits alone.", at_least=0)] = 1.0,
) -> Method:
    """r = 1[in the box] + weight (1 - (d / d_max)^2) + format; then GRPO.

    As in the released code (C), with its pitfall: a click that misses a box in the middle, by a fifth of the side
    from its centre, still earns 0.92 of the 2 for hit and distance.
    Left out: the self-evolution, which keeps items on whose box the model's attention lies.
    """
    return judge_grpo(
        draw.prompts(task), task, n, eps, beta, compared("se_gui", partial(reward, weight=weight)), by="compared"
    )
