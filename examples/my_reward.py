"""A reward of your own in one file: burnish train grpo --task add --reward examples/my_reward.py:right_and_short"""

from __future__ import annotations


def right_and_short(completions: list[str], answer: list[str], **columns: object) -> list[float]:
    """1 for the right answer on the last line, a little less for every line before it."""
    scores = []
    for text, right in zip(completions, answer, strict=True):
        lines = text.strip().splitlines() or [""]
        scores.append(float(lines[-1] == f"answer: {right}") - 0.02 * (len(lines) - 1))
    return scores
