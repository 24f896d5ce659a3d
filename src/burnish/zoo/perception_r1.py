"""Perception-R1: Pioneering Perception Policy with Reinforcement Learning (arXiv 2504.07954)."""

from __future__ import annotations

from itertools import permutations

from burnish import draw
from burnish.method import Method
from burnish.methods import opt, register
from burnish.methods.compositions import judge_grpo
from burnish.papers import Paper
from burnish.score.compared import Said, compared
from burnish.verifiers.boxes import boxes_of
from burnish.verifiers.overlap import Box, iou

PERCEPTION_R1 = Paper(
    "perception-r1", "2504.07954", "Perception-R1: Pioneering Perception Policy with Reinforcement Learning"
)
MOST = 8  # boxes that are matched; more of them are not looked at


def assigned(found: list[Box], wanted: list[Box]) -> float:
    """The largest sum of squared IoU over one-to-one matches, divided by the larger number of boxes."""
    few, many = sorted((found[:MOST], wanted[:MOST]), key=len)
    size = len(few)
    if size == 0:
        return 0.0
    if len(many) > 6:  # a search over all orders of more would take too long: the best free one for each in turn
        free, total = list(many), 0.0
        for box in few:
            best = max(free, key=lambda other: iou(box, other))
            free.remove(best)
            total += iou(box, best) ** 2
        return total / len(many)
    best_sum = max(sum(iou(a, b) ** 2 for a, b in zip(few, some, strict=True)) for some in permutations(many, size))
    return best_sum / len(many)


def reward(said: Said) -> float | None:
    """Squared overlap for references that are boxes; for others the verifier's score."""
    wanted = boxes_of(said.reference)
    if wanted is None:
        return None
    found = boxes_of(said.answer)
    return 0.0 if found is None else assigned([box for box, _ in found], [box for box, _ in wanted])


@register(
    PERCEPTION_R1,
    family="policy",
    summary="GRPO on boxes matched one to one, each worth its squared overlap.",
    when="Grounding or detection with pictures (`boxes`, `detect`), without thinking aloud.",
    example="burnish train perception_r1 --model tiny-omni --task boxes:1",
    trial={"n": 3},
)
def perception_r1(
    task: draw.Source, *, n: opt.GroupSize = 8, eps: opt.ClipRange = 0.2, beta: opt.KLCoef = 0.04
) -> Method:
    """r = max over one-to-one matches of sum of IoU^2 / max(#wanted, #found); then GRPO.

    With one box wanted and one found it is IoU^2, as in the released code for grounding (C); the rest of the matching
    follows the description in the paper (S). Beyond six boxes each takes the best free one in turn.
    """
    return judge_grpo(draw.prompts(task), task, n, eps, beta, compared("perception_r1", reward), by="compared")
