"""Visual Planning: Let's Think Only with Images (arXiv 2505.11409)."""

from __future__ import annotations

from burnish import draw
from burnish.method import Method
from burnish.methods import opt, register
from burnish.methods.compositions import judge_grpo
from burnish.papers import Paper
from burnish.score.compared import Said, compared
from burnish.tasks.codes.code import read
from burnish.tasks.codes.frames import progress

VPRL = Paper("visual-planning-vprl", "2505.11409", "Visual Planning: Let's Think Only with Images")
WORTH = {"nearer": 1.0, "no nearer": 0.0, "invalid": -5.0}


def reward(said: Said) -> float | None:
    """What a next frame is worth: nearer 1, no nearer 0, invalid -5; for other tasks the verifier's score."""
    lake = said.task.given.get("problem")
    if not said.task.key.startswith("frames ") or lake is None:
        return None
    return WORTH[progress(lake, read("c", said.answer))]


@register(
    VPRL,
    family="policy",
    summary="Plan in frames: a next frame earns 1 nearer to the goal, 0 if no nearer, -5 if it cannot be.",
    when="A model that writes pictures as codes should plan with them (`frames`).",
    example="burnish train vprl --model tiny-omni --task frames:2",
    trial={"n": 3},
)
def vprl(task: draw.Source, *, n: opt.GroupSize = 8, eps: opt.ClipRange = 0.2, beta: opt.KLCoef = 0.04) -> Method:
    """r(frame) = 1 if it is one step nearer, 0 if a step that is no nearer, -5 if no step leads to it; then GRPO.

    As in the paper (P): one next frame is sampled after a prefix, not a whole plan. Its first stage, imitation of
    random valid frames, is `burnish train sft` on the same task. With rewards (1, 0, 0) it is `grpo`.
    """
    return judge_grpo(draw.prompts(task), task, n, eps, beta, compared("vprl", reward), by="compared")
