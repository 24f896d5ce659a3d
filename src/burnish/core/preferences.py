"""P(y > y' | x) as a score of the pairs of a group, beside the scores of its replies.

A preference oracle (`--preference`, burnish/rewards/oracles.py) writes the chances of a group's replies against each
other on their traces. Methods that need a preference ask `chance` for it, which falls back on the scores of the two
replies where no oracle spoke; so they have one way to ask, and intransitive preferences reach all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations

from burnish.core.types import Trace

FromScores = Callable[[float, float], float]  # (score of y, score of y') -> P(y preferred to y')
NOTE = "preferred"  # note of a trace: its place in its group, and its chances against the replies of all places


def by_comparison(score: float, rival: float) -> float:
    """1 where the score is higher, 1/2 where it is the same, else 0."""
    return 0.5 * ((score > rival) + (score >= rival))


def by_bradley_terry(score: float, rival: float) -> float:
    """sigmoid(r - r'): the preference that a reward model stands for."""
    return 0.5 * (1 + math.tanh((score - rival) / 2))


def write_chances(traces: Sequence[Trace], chances: Sequence[Sequence[float]]) -> None:
    """Keep P_ij = P(y_i > y_j) on the traces of a group. The places hold when traces are dropped or reordered."""
    for place, (trace, row) in enumerate(zip(traces, chances, strict=True)):
        trace.note[NOTE] = {"place": place, "over": [float(p) for p in row]}


def chance(first: Trace, second: Trace, from_scores: FromScores, score: str = "reward") -> float:
    """P(first > second): what the run's oracle said; without one, that of their scores."""
    one, other = first.note.get(NOTE), second.note.get(NOTE)
    if one is None or other is None:
        return from_scores(first.scores[score], second.scores[score])
    probability: float = one["over"][other["place"]]
    return probability


def mean_wins(chances: Sequence[Sequence[float]]) -> list[float]:
    """Of each reply the mean of its chances against the others; 1/2 for a reply alone."""
    size = len(chances)
    return [
        sum(p for j, p in enumerate(row) if j != i) / (size - 1) if size > 1 else 0.5 for i, row in enumerate(chances)
    ]


def cycles(chances: Sequence[Sequence[float]]) -> tuple[int, int]:
    """(triples of replies of which each beats another, all triples): no score of single replies explains a cycle."""
    circular = total = 0
    for i, j, k in combinations(range(len(chances)), 3):
        total += 1
        around = (chances[i][j], chances[j][k], chances[k][i])
        circular += all(p > 0.5 for p in around) or all(p < 0.5 for p in around)
    return circular, total
