"""Rewards as functions of the length of a reply, in tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence


def cosine_between(at_zero: float, at_end: float, length: float, longest: float) -> float:
    """v(len) = at_end + (at_zero - at_end) (1 + cos(pi len / L)) / 2: from at_zero at length 0 to at_end at L.

    "Demystifying Long Chain-of-Thought Reasoning in LLMs" (arXiv 2502.03373). Half way it is the mean of the two.
    """
    return at_end + 0.5 * (at_zero - at_end) * (1 + math.cos(math.pi * length / longest))


def adaptive_penalty(length: int, solved: int, replies: int, beta: float) -> float:
    """ALP's penalty beta |y| max(p, 1/K), p = solved / K the solve rate of the prompt (arXiv 2506.05256)."""
    return beta * length * max(solved / replies, 1 / replies)


def group_relative_lengths(lengths: Sequence[int], right: Sequence[bool]) -> list[float]:
    """The length reward of Kimi k1.5 (arXiv 2501.12599, section 2.3.3) for the replies to one prompt.

        lambda = 0.5 - (len - min len) / (max len - min len);   right: lambda,   wrong: min(0, lambda)

    All 0 where all lengths are equal.
    """
    low, high = min(lengths, default=0), max(lengths, default=0)
    if low == high:
        return [0.0] * len(lengths)
    found = [0.5 - (length - low) / (high - low) for length in lengths]
    return [x if good else min(0.0, x) for x, good in zip(found, right, strict=True)]


def within_budget(length: int, budget: float, alpha: float, delta: float) -> float:
    """clip(alpha (budget - len) + delta, 0, 1): the factor of LCPO-Max (L1, arXiv 2503.04697)."""
    return max(0.0, min(1.0, alpha * (budget - length) + delta))


def quadratic_excess(length: float, original: float, share: float) -> float:
    """(max(0, len - share len_orig) / len_orig)^2: Hawkeye's penalty (arXiv 2504.00424), relative to len_orig."""
    return (max(0.0, length - share * original) / original) ** 2


def shortest_first(lengths: Sequence[int], right: Sequence[bool]) -> list[int]:
    """The place of each right reply among the right ones by length, from 0; equal lengths share a place; wrong: 0."""
    order = sorted({length for length, good in zip(lengths, right, strict=True) if good})
    places = {length: place for place, length in enumerate(order)}
    return [places[length] if good else 0 for length, good in zip(lengths, right, strict=True)]
