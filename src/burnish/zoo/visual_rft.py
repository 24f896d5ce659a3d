"""Visual-RFT: Visual Reinforcement Fine-Tuning (arXiv 2503.01785)."""

from __future__ import annotations

from burnish import draw
from burnish.method import Method
from burnish.methods import opt, register
from burnish.methods.compositions import judge_grpo
from burnish.papers import Paper
from burnish.score.compared import Said, compared
from burnish.verifiers.boxes import boxes_of
from burnish.verifiers.overlap import Box, iou

VISUAL_RFT = Paper("visual-rft", "2503.01785", "Visual-RFT: Visual Reinforcement Fine-Tuning")
COUNTS = 0.5  # an IoU that is not above it counts nothing


def detection(found: list[tuple[Box, float]], wanted: list[Box]) -> float:
    """R_IoU + R_conf: found boxes, the surest first, take the free wanted box that they overlap most.

    R_IoU = (sum of IoU above 0.5) / max(number wanted, number found)
    R_conf = mean over found boxes of their confidence c where their IoU is above 0.5, else of 1 - c
    """
    free, overlap, sure = set(range(len(wanted))), 0.0, 0.0
    for box, confidence in sorted(found, key=lambda one: -one[1]):
        best = max(sorted(free), key=lambda j: iou(box, wanted[j]), default=None)
        if best is not None and iou(box, wanted[best]) > COUNTS:
            free.discard(best)
            overlap += iou(box, wanted[best])
            sure += confidence
        else:
            sure += 1 - confidence
    return overlap / max(len(wanted), len(found), 1) + sure / max(len(found), 1)


def reward(said: Said) -> float | None:
    """Detection and format for references that are boxes; else the verifier's score and 1 for an answer."""
    wanted = boxes_of(said.reference)
    if wanted is None:
        return said.score + float(bool(said.answer))
    found = boxes_of(said.answer)
    return 0.0 if found is None else detection(found, [box for box, _ in wanted]) + 1.0


@register(
    VISUAL_RFT,
    family="policy",
    summary="GRPO on boxes and classes: overlap, calibrated confidence and format are the reward.",
    when="Detection or classification with pictures (`detect`), where a reply is more than right or wrong.",
    example="burnish train visual_rft --model tiny-omni --task detect:1",
    trial={"n": 3},
)
def visual_rft(task: draw.Source, *, n: opt.GroupSize = 8, eps: opt.ClipRange = 0.2, beta: opt.KLCoef = 0.04) -> Method:
    """r = R_IoU + R_conf + format for boxes, r = right + format for classes; then GRPO.

    R_IoU = sum of IoU > 0.5 / max(#wanted, #found);  R_conf = mean of (c if matched else 1 - c)
    format = 1 for an answer that can be read

    The reward is that of the released code in its later version of the divisor (C). Boxes without confidences have 1.
    Without boxes it is `grpo` on right or wrong plus the format.
    """
    return judge_grpo(draw.prompts(task), task, n, eps, beta, compared("visual_rft", reward), by="compared")
