"""Algorithms of bandits: UCB, LinUCB and Thompson sampling, and the terms that they add up for each arm."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

ALPHA = 0.5  # of the bonus, in UCB and in LinUCB (arXiv 2410.06238)

Terms = tuple[float, float]  # what an arm is worth so far, and the bonus for knowing little of it
Vector = Sequence[float]


def ucb(counts: Sequence[int], sums: Sequence[float], alpha: float = ALPHA) -> list[Terms]:
    """mean_a and sqrt(alpha ln t / n_a) for each arm, t the pulls so far; an arm that was never pulled has an infinite
    bonus. alpha = 0 is greedy, once every arm has been pulled.
    """
    t = max(1, sum(counts))
    return [
        (total / n, math.sqrt(alpha * math.log(t) / n)) if n else (0.0, math.inf)
        for n, total in zip(counts, sums, strict=True)
    ]


def thompson(counts: Sequence[int], sums: Sequence[float], dice: random.Random) -> list[float]:
    """A draw from Beta(1 + successes, 1 + failures) for each arm of a Bernoulli bandit."""
    return [dice.betavariate(1 + total, 1 + n - total) for n, total in zip(counts, sums, strict=True)]


class LinUCB:
    """theta_a . x and alpha sqrt(x' A_a^-1 x) for each arm, with A_a = I + sum of x x' and b_a = sum of r x over
    its pulls, theta_a = A_a^-1 b_a.
    """

    def __init__(self, arms: int, size: int, alpha: float = ALPHA) -> None:
        self.alpha = alpha
        self.inverse = [[[float(i == j) for j in range(size)] for i in range(size)] for _ in range(arms)]
        self.b = [[0.0] * size for _ in range(arms)]

    def terms(self, x: Vector) -> list[Terms]:
        found = []
        for inverse, b in zip(self.inverse, self.b, strict=True):
            known = _times(inverse, x)
            found.append((_dot(_times(inverse, b), x), self.alpha * math.sqrt(max(0.0, _dot(x, known)))))
        return found

    def saw(self, arm: int, x: Vector, reward: float) -> None:
        """A^-1 after A <- A + x x' (Sherman and Morrison), b <- b + reward x."""
        inverse = self.inverse[arm]
        along = _times(inverse, x)
        scale = 1 + _dot(x, along)
        size = range(len(x))
        self.inverse[arm] = [[inverse[i][j] - along[i] * along[j] / scale for j in size] for i in size]
        self.b[arm] = [old + reward * own for old, own in zip(self.b[arm], x, strict=True)]


def best_arm(values: Sequence[float]) -> int:
    """The arm with the largest value, the first of equal ones."""
    return max(range(len(values)), key=lambda arm: (values[arm], -arm))


def worth(terms: Sequence[Terms]) -> list[float]:
    """Value plus bonus of each arm."""
    return [value + bonus for value, bonus in terms]


def _dot(a: Vector, b: Vector) -> float:
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def _times(matrix: Sequence[Vector], x: Vector) -> list[float]:
    return [_dot(row, x) for row in matrix]
