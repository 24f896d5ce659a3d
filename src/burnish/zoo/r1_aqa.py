"""Reinforcement Learning Outperforms Supervised Fine-Tuning: A Case Study on Audio QA (arXiv 2503.11197)."""

from __future__ import annotations

from burnish import draw
from burnish.method import Method
from burnish.methods import opt, register
from burnish.methods.compositions import judge_grpo
from burnish.papers import Paper
from burnish.score.compared import Said, compared

R1_AQA = Paper(
    "r1-aqa",
    "2503.11197",
    "Reinforcement Learning Outperforms Supervised Fine-Tuning: A Case Study on Audio Question Answering",
)


def reward(said: Said) -> float:
    """1 for the right option, and 1 for an answer in the format."""
    return said.score + float(bool(said.answer))


@register(
    R1_AQA,
    family="policy",
    summary="GRPO on questions about sounds with options: the right letter, and the format.",
    when="Multiple choice about sounds (`tones`), to be compared with `sft` on the same questions.",
    example="burnish train r1_aqa --model tiny-omni --task tones:1",
    trial={"n": 3},
)
def r1_aqa(task: draw.Source, *, n: opt.GroupSize = 8, eps: opt.ClipRange = 0.2, beta: opt.KLCoef = 0.04) -> Method:
    """r = 1[right option] + 1[an answer that can be read]; then GRPO with 8 replies at temperature 1 (C).

    The authors' best setting has no thinking. Where every reply has the format it is `grpo`.
    """
    return judge_grpo(draw.prompts(task), task, n, eps, beta, compared("r1_aqa", reward), by="compared")
