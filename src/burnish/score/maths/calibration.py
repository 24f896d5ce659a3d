"""Rewards for stated confidence, and rewards of graders with known error rates."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_STATED = re.compile(r"confidence\s*(?:is|[:=>])?\s*(-?[0-9]+(?:\.[0-9]+)?)\s*(%)?", re.IGNORECASE)


def stated_confidence(text: str, scale: float = 10.0) -> float | None:
    """The last "confidence: 7" of a text as a probability 0.7, or "70%"; None where there is none or it is beyond 1."""
    found = [*_STATED.finditer(text)]
    if not found:
        return None
    value = float(found[-1][1]) / (100.0 if found[-1][2] else scale)
    return value if 0 <= value <= 1 else None


def sayself_reward(correct: bool, p: float | None) -> float:
    """1 - 2 (correct - p)^2, and -1 without a confidence (SaySelf, arXiv 2405.20974, as coded).

    Confidence 0.7: 0.82 for a right reply, 0.02 for a wrong one. p = 1 always gives +1 and -1.
    """
    return -1.0 if p is None else 1 - 2 * (float(correct) - p) ** 2


def brier(correct: bool, p: float | None, absent: float = 1.0) -> float:
    """(correct - p)^2, the Brier score: 0 is best; `absent` without a confidence."""
    return absent if p is None else (float(correct) - p) ** 2


def unbiased(reward: float, false_positive: float, false_negative: float) -> float:
    """(r - fp) / (1 - fp - fn), whose mean is the true 0/1 reward if the grader errs at these rates.

    A grader says 1 with probability fp + (1 - fp - fn) t for the truth t; solving for t gives the formula. It is the
    unbiased estimator of Natarajan et al., Learning with Noisy Labels (NeurIPS 2013), for 0/1 rewards.
    """
    return (reward - false_positive) / (1 - false_positive - false_negative)


@dataclass(frozen=True)
class Bin:
    """Verdicts of like confidence: how many, the mean confidence and the share that is right."""

    count: int
    confidence: float
    accuracy: float


def binned(stated: Iterable[tuple[float, float]], bins: int, low: float = 0.0) -> list[Bin]:
    """The reliability curve of (confidence, right) over [low, 1] in bins of equal width; empty bins are left out."""
    held: list[list[tuple[float, float]]] = [[] for _ in range(bins)]
    for confidence, right in stated:
        held[min(bins - 1, int((confidence - low) / (1 - low) * bins))].append((confidence, right))
    return [
        Bin(len(some), statistics.fmean(c for c, _ in some), statistics.fmean(r for _, r in some))
        for some in held
        if some
    ]


def calibration_error(curve: Sequence[Bin]) -> float:
    """The expected calibration error: sum over bins of share x |accuracy - confidence|."""
    total = sum(one.count for one in curve)
    return sum(one.count / total * abs(one.accuracy - one.confidence) for one in curve)
