"""Ratings of players from their battles: Bradley-Terry by maximum likelihood, on Elo's scale."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

SCALE = 400.0  # Elo: a lead of 400 points is odds of 10 to 1


def elo(wins: Sequence[Sequence[float]] | NDArray[np.float64]) -> NDArray[np.float64]:
    """[n] ratings with mean 0; wins[i][j]: how often i beat j, a tie as one half for each.

    P(i beats j) = 1 / (1 + 10^((R_j - R_i) / 400)), R of maximum likelihood, by the MM iteration of Hunter (2004). Two
    players and 3 wins of 4: R_1 - R_2 = 400 log10 3 = 191. Where no finite maximum exists (someone never lost, or two
    sets of players never met), every pair of players counts one more tie.
    """
    won = np.asarray(wins, dtype=np.float64)
    if not _connected(won):
        won = won + 0.5 * (1 - np.eye(len(won)))
    met, total = won + won.T, won.sum(axis=1)
    strength = np.ones(len(won))
    for _ in range(10_000):
        new = total / (met / (strength[:, None] + strength[None, :])).sum(axis=1)
        new /= np.exp(np.log(new).mean())
        moved = float(np.abs(np.log(new / strength)).max())
        strength = new
        if moved < 1e-10:
            break
    return SCALE * np.log10(strength)


def _connected(won: NDArray[np.float64]) -> bool:
    """Whether there is a chain of wins from every player to every other: then the maximum is finite and unique."""
    reach = (won > 0) | np.eye(len(won), dtype=bool)
    for _ in range(len(won)):
        reach = reach | ((reach.astype(int) @ reach.astype(int)) > 0)
    return bool(reach.all())
