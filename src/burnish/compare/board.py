"""Compute a leaderboard from results: estimates with intervals, pairwise tests, learning curves, sample efficiency."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from burnish.compare.budget import Budget
from burnish.compare.job import RunResult
from burnish.compare.results import by_label
from burnish.compare.statistics import Matrix, Test, holm, interval, paired_test, pass_matrix, reached
from burnish.evals.better import better_is_lower, is_share
from burnish.evals.evaluate import Interval

LEVEL = 0.05
ALL_PAIRS = 8  # with more candidates, each is tested against the first instead of every pair
GRID = 16  # points of a learning curve


@dataclass(frozen=True)
class Standing:
    """One candidate: its runs and their statistics.

    scores   [seeds, tasks], final scores; one column if the method is not evaluated by replies
    value    mean final score with its interval; start  mean score before training
    passes   k -> pass@k with its interval
    curve    (amount of the budget's unit, mean score with its interval)
    reach    for each seed, the amount of the budget's unit used to reach the threshold; None if it was not reached
    """

    label: str
    rows: tuple[RunResult, ...]
    scores: Matrix
    value: Interval
    start: float
    passes: dict[int, Interval]
    curve: tuple[tuple[float, Interval], ...]
    reach: tuple[float | None, ...] = ()

    @property
    def by_seed(self) -> tuple[float, ...]:
        return tuple(float(v) for v in self.scores.mean(1))

    @property
    def spread(self) -> float:
        """The standard deviation over seeds; NaN for one seed."""
        return statistics.stdev(self.by_seed) if len(self.by_seed) > 1 else math.nan

    def cost(self, name: str) -> float:
        """The mean over seeds of a run's cost: tokens, samples, flops, seconds or steps."""
        total = {"tokens": ("sampled", "trained")}.get(name, (name,))
        return statistics.fmean(sum(row.spent[part] for part in total) for row in self.rows)

    def reached(self) -> float | None:
        """The median of `reach`; None unless more than half of the seeds reached the threshold."""
        amounts = sorted(math.inf if amount is None else amount for amount in self.reach)
        median = statistics.median_high(amounts) if amounts else math.inf
        return None if math.isinf(median) else median


@dataclass(frozen=True)
class Pair:
    """The test of a against b, and its p-value after Holm's correction for all pairs."""

    a: str
    b: str
    test: Test
    adjusted: float

    @property
    def distinct(self) -> bool:
        return self.adjusted <= LEVEL


@dataclass(frozen=True)
class Board:
    """The contents of a report. `standings` are ranked, `failures` are runs without a result.

    against  the baseline that the others are tested against; the best candidate if every pair is tested
    """

    task: str
    budget: Budget
    measure: str
    standings: tuple[Standing, ...]
    pairs: tuple[Pair, ...]
    failures: tuple[RunResult, ...]
    threshold: float | None
    against: str

    def pair(self, a: str, b: str) -> Pair | None:
        """The test of two candidates, in either order."""
        return next((p for p in self.pairs if {p.a, p.b} == {a, b}), None)

    @property
    def percent(self) -> bool:
        return is_share(self.measure)

    def seeds_needed(self) -> int | None:
        """The number of seeds that could show a difference; None if the present number can."""
        if not self.pairs or any(len(self.pairs) * pair.test.least <= LEVEL for pair in self.pairs):
            return None
        return next(n for n in range(2, 99) if len(self.pairs) * 2 / math.comb(2 * n, n) <= LEVEL)


def board(rows: Sequence[RunResult], *, threshold: float | None = None, against: str | None = None) -> Board:
    """The leaderboard of results of one task and one budget.

    against: test every candidate against this baseline only, instead of every pair
    """
    done = by_label(row for row in rows if row.done)
    failures = tuple(row for row in rows if not row.done)
    if not done:
        reasons = "; ".join(sorted({f"{row.label}: {row.reason}" for row in failures}))
        raise ValueError(f"no run is finished, so there is nothing to compare: {reasons or 'nothing has run yet'}")
    first = next(iter(done.values()))[0]
    lower = better_is_lower(first.measure)
    standings = [_standing(label, results) for label, results in done.items()]
    standings.sort(key=lambda one: one.value.mean if lower else -one.value.mean)
    level, best = threshold, standings[0]
    if level is None and not lower and best.curve:
        start = statistics.fmean(one.start for one in standings)
        level = start + 0.75 * (best.value.mean - start) if best.value.mean > start else None
    ranked = tuple(_with_reach(one, level) for one in standings)
    order = [label for label in by_label(rows) if label in done]
    base = against if against in done else None if len(order) <= ALL_PAIRS else order[0]
    couples = [(other, base) for other in order if other != base] if base else list(combinations(order, 2))
    pairs = _pairs(ranked, couples)
    return Board(first.task, first.budget, first.measure, ranked, pairs, failures, level, base or ranked[0].label)


def scores(rows: Sequence[RunResult]) -> Matrix:
    """[seeds, tasks]: the share of correct replies of each run to each task, or their mean reward."""
    if all(row.scores for row in rows):
        return np.array([list(row.scores) for row in rows])
    if all(row.right for row in rows):
        return np.array([[count / row.replies for count in row.right] for row in rows])
    return np.array([[row.value] for row in rows])


def _standing(label: str, rows: Sequence[RunResult]) -> Standing:
    x = scores(rows)
    bounds = (0.0, 1.0) if is_share(rows[0].measure) else None
    replies = min(row.replies for row in rows)
    ks = [2**i for i in range(replies.bit_length()) if 2**i <= replies] if replies > 1 else []
    if replies > 1 and ks[-1] != replies:
        ks.append(replies)
    counts = np.array([row.right for row in rows], dtype=int)
    passes = {k: interval(pass_matrix(counts, replies, k)) for k in ks}
    start = float(np.mean([row.curve[0].value for row in rows]))
    return Standing(label, tuple(rows), x, interval(x, bounds), start, passes, _curve(rows, bounds))


def _curve(rows: Sequence[RunResult], bounds: tuple[float, float] | None) -> tuple[tuple[float, Interval], ...]:
    """The learning curve: scores per task and run, interpolated linearly on a common grid, then averaged."""
    if any(len(row.curve) < 2 for row in rows):
        return ()
    end = min(max(mark.at for mark in row.curve) for row in rows)
    grid = np.linspace(0.0, min(end, rows[0].budget.limit), GRID)
    layers = np.stack([_along(row, grid) for row in rows])  # [seeds, grid, tasks]
    return tuple((float(x), interval(layers[:, i], bounds)) for i, x in enumerate(grid))


def _along(row: RunResult, grid: np.ndarray) -> Matrix:
    """[grid, tasks]: the scores of one run, interpolated on the grid."""
    xs = np.array([mark.at for mark in row.curve])
    if row.curve[0].right and row.right:
        n = len(row.curve[0].right)
        last = np.array(row.right[:n]) / row.replies
        ys = np.array([[int(c) for c in mark.right] for mark in row.curve[:-1]] + [last.tolist()])
    else:
        ys = np.array([[mark.value] for mark in row.curve])
    after = np.clip(np.searchsorted(xs, grid, side="right"), 1, len(xs) - 1)
    width = np.maximum(xs[after] - xs[after - 1], 1e-12)
    share = np.clip((grid - xs[after - 1]) / width, 0.0, 1.0)[:, None]
    along: Matrix = ys[after - 1] * (1 - share) + ys[after] * share
    return along


def _with_reach(one: Standing, level: float | None) -> Standing:
    if level is None:
        return one
    return replace(one, reach=tuple(reached([(m.at, m.value) for m in row.curve], level) for row in one.rows))


def _pairs(ranked: Sequence[Standing], couples: Sequence[tuple[str, str]]) -> tuple[Pair, ...]:
    by_name = {one.label: one for one in ranked}
    tests = [(a, b, test) for a, b in couples if (test := _test(by_name[a], by_name[b]))]
    adjusted = holm([test.p for _, _, test in tests])
    return tuple(Pair(a, b, test, p) for (a, b, test), p in zip(tests, adjusted, strict=True))


def _test(a: Standing, b: Standing) -> Test | None:
    """The test on the common seeds; None if the scores cannot be paired."""
    seeds = sorted({row.seed for row in a.rows} & {row.seed for row in b.rows})
    if not seeds or a.scores.shape[1] != b.scores.shape[1]:
        return None
    pick = [[[row.seed for row in one.rows].index(seed) for seed in seeds] for one in (a, b)]
    return paired_test(a.scores[pick[0]], b.scores[pick[1]])
