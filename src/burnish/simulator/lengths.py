"""Lengths of replies: a log-normal distribution, cut at the longest reply that is allowed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

GRID = 2000  # quantiles by which the mean of the cut distribution is found


@dataclass(frozen=True)
class Lengths:
    """Replies of `mean` tokens, of which none is longer than `longest`.

    spread     the standard deviation of the logarithm, before the cut; 0: all replies have the mean length
    """

    mean: float
    longest: float
    spread: float = 0.6

    def __post_init__(self) -> None:
        if not 0 < self.mean <= self.longest:
            raise ValueError(
                f"replies of {self.mean:g} tokens on average cannot end within {self.longest:g}; "
                "the mean is above 0 and at most the longest"
            )

    def draw(self, count: int, seed: int) -> NDArray[np.float64]:
        """So many lengths; the same seed gives the same."""
        normal = np.random.default_rng(seed).standard_normal(count)
        return np.clip(np.rint(np.exp(_centre(self) + self.spread * normal)), 1, self.longest)


@lru_cache(maxsize=256)
def _centre(lengths: Lengths) -> float:
    """The mean of the logarithm at which the cut distribution has the mean that is asked for, by bisection."""
    inverse = NormalDist().inv_cdf
    normal = np.array([inverse((k + 0.5) / GRID) for k in range(GRID)])
    low, high = -5.0, np.log(lengths.longest) + 10 * max(lengths.spread, 0.1)
    for _ in range(80):
        middle = (low + high) / 2
        mean = np.minimum(np.exp(middle + lengths.spread * normal), lengths.longest).mean()
        low, high = (middle, high) if mean < lengths.mean else (low, middle)
    return float(low + high) / 2
