"""Vision-R1: Evolving Human-Free Alignment in LVLMs via Vision-Guided Reinforcement Learning (arXiv 2503.18013)."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from burnish import draw
from burnish.method import Method, Option
from burnish.methods import opt, register
from burnish.methods.compositions import judge_grpo
from burnish.papers import Paper
from burnish.score.compared import Said, compared
from burnish.verifiers.boxes import boxes_of
from burnish.verifiers.overlap import Box, giou

VISION_R1 = Paper(
    "vision-r1",
    "2503.18013",
    "Vision-R1: Evolving Human-Free Alignment in Large Vision-Language Models via Vision-Guided Reinforcement Learning",
)
EARLY, LATE = (0.5, 0.75), (0.75, 0.9)  # below the first number a value counts 0, above the second 1


def cut(value: float, least: float, most: float) -> float:
    """0 below `least`, 1 above `most`, else the value."""
    return 0.0 if value < least else 1.0 if value > most else value


def guided(found: list[Box], wanted: list[Box], bounds: tuple[float, float]) -> float:
    """precision + recall. Found boxes take, in their order, the free wanted one of the largest GIoU.

    precision = cut(mean over found boxes of cut(GIoU));  recall = cut(share of wanted boxes whose cut is above 0)
    """
    free, values = set(range(len(wanted))), []
    for box in found:
        best = max(sorted(free), key=lambda j: giou(box, wanted[j]), default=None)
        value = 0.0 if best is None else cut(giou(box, wanted[best]), *bounds)
        if value > 0:
            free.discard(best)
        values.append(value)
    precision = sum(values) / max(1, len(values))
    return cut(precision, *bounds) + cut(sum(value > 0 for value in values) / max(1, len(wanted)), *bounds)


def reward(said: Said, switch: float) -> float | None:
    """Format, precision and recall under the bounds of this step."""
    wanted = boxes_of(said.reference)
    if wanted is None:
        return None
    found = boxes_of(said.answer)
    bounds = EARLY if said.clock.step < switch * said.clock.of else LATE
    return 0.0 if found is None else 1.0 + guided([box for box, _ in found], [box for box, _ in wanted], bounds)


@register(
    VISION_R1,
    family="policy",
    summary="GRPO on boxes whose overlap counts by bounds that tighten in the course of the run.",
    when="Grounding or detection, when nearly right boxes should stop earning anything.",
    example="burnish train vision_r1 --model tiny-omni --task detect:1",
    trial={"n": 3},
)
def vision_r1(
    task: draw.Source,
    *,
    n: opt.GroupSize = 8,
    eps: opt.ClipRange = 0.2,
    beta: opt.KLCoef = 0.04,
    switch: Annotated[float, Option("Share of the run after which the bounds are tight.", at_least=0, at_most=1)] = 0.5,
) -> Method:
    """r = format + precision + recall on GIoU; a value below lo counts 0, above hi 1; then GRPO.

    (lo, hi) = (0.5, 0.75), after `switch` of the run (0.75, 0.9): step 1,500 in the released code (C), whose value is
    the GIoU, not the IoU. Departure: boxes are matched in their order by GIoU alone, where the code takes the cheapest
    assignment by L1, class and GIoU; all boxes of a question have one class here.
    """
    return judge_grpo(
        draw.prompts(task), task, n, eps, beta, compared("vision_r1", partial(reward, switch=switch)), by="compared"
    )
