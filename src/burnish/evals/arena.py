"""Battles between models on held-out prompts, and their ratings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from burnish.core import randomness
from burnish.core.messages import prompt_shown
from burnish.core.step import Step
from burnish.core.types import Task
from burnish.judges.question import Template
from burnish.rollout.operated import answers_of
from burnish.score.judge import judge as verified
from burnish.score.judges.battles import fought
from burnish.score.judges.judge import Judge
from burnish.score.maths.bradley_terry import elo
from burnish.tasks.source import Source

RESAMPLED = 500


@dataclass(frozen=True)
class Rating:
    """A model's record: battles won, lost and tied, and its Elo with a 95% interval over prompts."""

    model: str
    won: int
    lost: int
    tied: int
    elo: float
    low: float
    high: float


def leads_of(
    players: Sequence[Judge],
    tasks: list[Task],
    source: Source,
    judge: Judge | None,
    template: Template,
    step: Step,
) -> NDArray[np.float64]:
    """[tasks, n, n]: by how much the reply of i is better than that of j; 0 for a tie. No reply loses against one."""
    replies = [answers_of(player, tasks, step) for player in players]
    leads = np.zeros((len(tasks), len(players), len(players)))
    for i, j in combinations(range(len(players)), 2):
        both = [k for k in range(len(tasks)) if replies[i][k] is not None and replies[j][k] is not None]
        one, other = ([str(own[k]) for k in both] for own in (replies[i], replies[j]))
        asked = [tasks[k] for k in both]
        if judge is None:
            scores = [[v.score for v in verified(source, asked, own)] for own in (one, other)]
            margins = [a - b for a, b in zip(*scores, strict=True)]
        else:
            fights = [(prompt_shown(t.prompt), a, b) for t, a, b in zip(asked, one, other, strict=True)]
            margins = fought(fights, judge, template, step)
        for k in range(len(tasks)):
            leads[k, i, j] = float(replies[i][k] is not None) - float(replies[j][k] is not None)
        leads[both, i, j] = margins
        leads[:, j, i] = -leads[:, i, j]
    return leads


def ratings(names: Sequence[str], leads: NDArray[np.float64]) -> list[Rating]:
    """The players, best first; the intervals are those of ratings on resampled prompts."""
    wins = (leads > 0) + 0.5 * (leads == 0) * (1 - np.eye(len(names)))
    points = elo(wins.sum(axis=0))
    dice = randomness.generator("arena", len(leads))
    again = [elo(wins[dice.integers(0, len(leads), len(leads))].sum(axis=0)) for _ in range(RESAMPLED)]
    low, high = np.percentile(again, (2.5, 97.5), axis=0)
    ratings = [
        Rating(
            name,
            int((leads[:, i] > 0).sum()),
            int((leads[:, i] < 0).sum()),
            int((leads[:, i] == 0).sum() - len(leads)),
            float(points[i]),
            float(low[i]),
            float(high[i]),
        )
        for i, name in enumerate(names)
    ]
    return sorted(ratings, key=lambda one: -one.elo)
