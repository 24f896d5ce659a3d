"""Rewards for saying how sure one is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from burnish import papers
from burnish.core.method import Group, Option, Part, Step
from burnish.rewards import MEASURED, Scorer, register_reward
from burnish.score.judge import reply_text
from burnish.score.maths.calibration import binned, brier, calibration_error, sayself_reward, stated_confidence
from burnish.tasks.source import Source

BINS = 10  # of the calibration error
Scale = Annotated[float, Option("What a confidence is divided by: 10 for 1 to 10.", above=0)]


def _measured(name: str, scale: float, reward: Callable[[bool, float | None], float]) -> Scorer:
    def call(groups: list[Group], step: Step) -> list[Group]:
        chat = step.models["policy"].chat
        stated = []
        for trace in (trace for group in groups for trace in group.traces):
            if "correct" not in trace.scores:
                raise ValueError("no verifier says which replies are correct; use a task with a verifier")
            p = stated_confidence(reply_text(trace, chat), scale)
            right = trace.scores["correct"] > 0
            trace.scores[MEASURED + name] = reward(right, p)
            step.notes.add("confidence_stated", p is not None)
            if p is not None:
                step.notes.add("brier", brier(right, p))
                stated.append((p, float(right)))
        if stated:
            step.notes.add("calibration_error", calibration_error(binned(stated, BINS)))
        return groups

    return Scorer(
        part=Part(
            name=name,
            call=call,
            reads=frozenset({"score:reward", "tokens:policy"}),
            writes=frozenset({f"score:{MEASURED}{name}"}),
        )
    )


@register_reward(
    papers.SAYSELF,
    summary="A stated confidence is rewarded by how near it is to being right or wrong.",
    when="The model writes 'Confidence: 7' after its answer and should mean it.",
    example="burnish train ppo --task data.jsonl --reward 'math,sayself'",
)
def sayself(task: Source, *, scale: Scale = 10.0) -> Scorer:
    """R = 1 - 2 (correct - p)^2, p = confidence / scale, from the last "confidence: N" (or N%) of the reply.

    No confidence, or one outside [0, scale]: -1. In expectation the best p is the probability of being right. A wrong
    reply that says so has nearly as much as a right one (0.98 at confidence 1), so R alone does not reward being
    right: add a reward that does. The formula is that of the released code; the paper's rationales and its SFT stage
    are data. The verifier reads the same reply: have the confidence on a line of its own after the answer.
    """
    return _measured("sayself", scale, sayself_reward)


@register_reward(
    summary="Minus the Brier score of the stated confidence.",
    when="Being right should be rewarded and confidence calibrated: --reward 'math,brier_score' is RLCR.",
    example="burnish train grpo --task data.jsonl --reward 'math,brier_score'",
)
def brier_score(
    task: Source,
    *,
    scale: Scale = 10.0,
    absent: Annotated[float, Option("The Brier score of a reply without a confidence.", at_least=0)] = 1.0,
) -> Scorer:
    """-(correct - p)^2, p = confidence / scale; -absent where no confidence can be read.

    With a 0/1 reward for being right it is RLCR's 1[correct] - (1[correct] - p)^2 (arXiv 2507.16806).
    """
    return _measured("brier_score", scale, lambda right, p: -brier(right, p, absent))
