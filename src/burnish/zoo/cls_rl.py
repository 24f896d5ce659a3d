"""Think or Not Think: A Study of Explicit Thinking in Rule-Based Visual RFT (CLS-RL, arXiv 2503.16188)."""

from __future__ import annotations

from burnish import draw
from burnish.method import Method
from burnish.methods import opt, register
from burnish.methods.compositions import judge_grpo
from burnish.papers import Paper
from burnish.score.compared import Said, compared

CLS_RL = Paper(
    "cls-rl-no-thinking-cls-rl",
    "2503.16188",
    "Think or Not Think: A Study of Explicit Thinking in Rule-Based Visual Reinforcement Fine-Tuning",
)


def alone(said: Said) -> float | None:
    """1 where the reply is the answer and nothing else: its line `answer: ...`, or the bare label."""
    whole = said.text.strip()
    bare = whole.removeprefix("answer:").strip()
    exact = "\n" not in whole and bare in (said.answer, said.reference)
    return float(exact and (said.right or bare == said.reference))


@register(
    CLS_RL,
    family="policy",
    summary="GRPO on labels with thinking switched off: the whole reply must be the label.",
    when="Classification, where thinking aloud costs tokens and gains nothing.",
    example="burnish train no_thinking_cls_rl --model tiny-omni --task tones:3",
    trial={"n": 3},
)
def no_thinking_cls_rl(
    task: draw.Source, *, n: opt.GroupSize = 8, eps: opt.ClipRange = 0.2, beta: opt.KLCoef = 0.04
) -> Method:
    """r = 1[the whole reply is the label], nothing else; then GRPO.

    As in the released code for no thinking (C); the line `answer: LABEL` of the tasks in the box counts as the label.
    With thinking (a right answer anywhere earns 1) it is `grpo` on the verifier's score.
    """
    return judge_grpo(draw.prompts(task), task, n, eps, beta, compared("whole_answer", alone), by="compared")
