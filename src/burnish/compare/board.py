"""From results to a leaderboard: estimates with intervals, pairs with tests, curves with bands, efficiency, cost, stability."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from burnish.compare.budget import Budget
from burnish.compare.job import Found
from burnish.compare.statistics import Matrix, Test, holm, interval, paired_test, pass_matrix, reached
from burnish.compare.store import by_label
from burnish.report.numbers import better_is_lower
from burnish.run.evaluate import Interval

LEVEL = 0.05
ALL_PAIRS = 8  # up to so many candidates every pair is tested; beyond, each against the first
GRID = 16  # points of a learning curve


@dataclass(frozen=True)
class Standing:
    """One candidate: its runs, and what they say together.

    scores   [seeds, tasks] at the end; one column where a method is not judged by its replies
    passes   k -> pass@k with its interval
    curve    (amount of the budget's unit, mean with its interval)
    reach    for each seed, what it took to come up to the threshold; None where it never did
    """

    label: str
    rows: tuple[Found, ...]
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
        """The standard deviation over seeds; nan with one."""
        return statistics.stdev(self.by_seed) if len(self.by_seed) > 1 else math.nan

    def cost(self, name: str) -> float:
        """The mean over seeds of what a run used: tokens, samples, flops, seconds, steps."""
        total = {"tokens": ("sampled", "trained")}.get(name, (name,))
        return statistics.fmean(sum(row.spent[part] for part in total) for row in self.rows)

    def reached(self) -> float | None:
        """The median over seeds of what it took, where more than half of the seeds came so far."""
        taken = sorted(math.inf if one is None else one for one in self.reach)
        middle = statistics.median_high(taken) if taken else math.inf
        return None if math.isinf(middle) else middle


@dataclass(frozen=True)
class Pair:
    """a against b, and what p is once all pairs are asked about together."""

    a: str
    b: str
    test: Test
    adjusted: float

    @property
    def distinct(self) -> bool:
        return self.adjusted <= LEVEL


@dataclass(frozen=True)
class Board:
    """Everything a report shows. `standings` are ranked, `failures` are runs without a result.

    against  the candidate that the others are tested against; the best one where every pair is tested
    """

    task: str
    budget: Budget
    measure: str
    standings: tuple[Standing, ...]
    pairs: tuple[Pair, ...]
    failures: tuple[Found, ...]
    threshold: float | None
    against: str

    def pair(self, a: str, b: str) -> Pair | None:
        """The test of two candidates, whichever stands first."""
        return next((p for p in self.pairs if {p.a, p.b} == {a, b}), None)

    @property
    def percent(self) -> bool:
        return self.measure.endswith("accuracy")

    def seeds_needed(self) -> int | None:
        """The seeds at which a difference could be shown, where so few as there are cannot show any; None where they can."""
        if not self.pairs or any(len(self.pairs) * pair.test.least <= LEVEL for pair in self.pairs):
            return None
        return next(n for n in range(2, 99) if len(self.pairs) * 2 / math.comb(2 * n, n) <= LEVEL)


def board(rows: Sequence[Found], *, threshold: float | None = None, against: str | None = None) -> Board:
    """The leaderboard of some results, which are of one task and one budget.

    against: test every candidate against this one alone, instead of every pair (which is for few candidates).
    """
    done = by_label(row for row in rows if row.done)
    failures = tuple(row for row in rows if not row.done)
    if not done:
        reasons = "; ".join(sorted({f"{row.label}: {row.reason}" for row in failures}))
        raise ValueError(f"no run came to its end, so there is nothing to compare: {reasons or 'nothing has run yet'}")
    first = next(iter(done.values()))[0]
    lower = better_is_lower(first.measure)
    found = [_standing(label, mine) for label, mine in done.items()]
    found.sort(key=lambda one: one.value.mean if lower else -one.value.mean)
    level = threshold
    if level is None and not lower and found[0].curve:
        start = statistics.fmean(one.start for one in found)
        level = start + 0.75 * (found[0].value.mean - start) if found[0].value.mean > start else None
    ranked = tuple(_with_reach(one, level) for one in found)
    order = [label for label in by_label(rows) if label in done]
    one = against if against in done else None if len(order) <= ALL_PAIRS else order[0]
    pairs = _pairs(ranked, [(other, one) for other in order if other != one] if one else list(combinations(order, 2)))
    return Board(first.task, first.budget, first.measure, ranked, pairs, failures, level, one or ranked[0].label)


def scores(rows: Sequence[Found]) -> Matrix:
    """[seeds, tasks]: the share of right replies of each run to each task."""
    if all(row.right for row in rows):
        return np.array([[count / row.replies for count in row.right] for row in rows])
    return np.array([[row.value] for row in rows])


def _standing(label: str, rows: Sequence[Found]) -> Standing:
    x = scores(rows)
    bounds = (0.0, 1.0) if rows[0].measure.endswith("accuracy") else None
    replies = min(row.replies for row in rows)
    ks = [2**i for i in range(replies.bit_length()) if 2**i <= replies] if replies > 1 else []
    if replies > 1 and ks[-1] != replies:
        ks.append(replies)
    counts = np.array([row.right for row in rows], dtype=int)
    passes = {k: interval(pass_matrix(counts, replies, k)) for k in ks}
    return Standing(label, tuple(rows), x, interval(x, bounds), float(np.mean([row.curve[0].value for row in rows])), passes, _curve(rows, bounds))  # fmt: skip


def _curve(rows: Sequence[Found], bounds: tuple[float, float] | None) -> tuple[tuple[float, Interval], ...]:
    """The learning curve: each task's score is joined by straight lines along each run, then averaged at the same amounts."""
    if any(len(row.curve) < 2 for row in rows):
        return ()
    end = min(max(mark.at for mark in row.curve) for row in rows)
    grid = np.linspace(0.0, min(end, rows[0].budget.limit), GRID)
    layers = np.stack([_along(row, grid) for row in rows])  # [seeds, grid, tasks]
    return tuple((float(x), interval(layers[:, i], bounds)) for i, x in enumerate(grid))


def _along(row: Found, grid: np.ndarray) -> Matrix:
    """[grid, tasks] of one run."""
    xs = np.array([mark.at for mark in row.curve])
    if row.curve[0].right:
        n = len(row.curve[0].right)
        last = np.array(row.right[:n]) / row.replies
        ys = np.array([[int(c) for c in mark.right] for mark in row.curve[:-1]] + [last.tolist()])
    else:
        ys = np.array([[mark.value] for mark in row.curve])
    after = np.clip(np.searchsorted(xs, grid, side="right"), 1, len(xs) - 1)
    wide = np.maximum(xs[after] - xs[after - 1], 1e-12)
    share = np.clip((grid - xs[after - 1]) / wide, 0.0, 1.0)[:, None]
    return ys[after - 1] * (1 - share) + ys[after] * share


def _with_reach(one: Standing, level: float | None) -> Standing:
    if level is None:
        return one
    taken = [reached([(mark.at, mark.value) for mark in row.curve], level) for row in one.rows]
    return Standing(one.label, one.rows, one.scores, one.value, one.start, one.passes, one.curve, tuple(taken))


def _pairs(ranked: Sequence[Standing], couples: Sequence[tuple[str, str]]) -> tuple[Pair, ...]:
    by_name = {one.label: one for one in ranked}
    tests = [(a, b, test) for a, b in couples if (test := _test(by_name[a], by_name[b]))]
    adjusted = holm([test.p for _, _, test in tests])
    return tuple(Pair(a, b, test, p) for (a, b, test), p in zip(tests, adjusted, strict=True))


def _test(a: Standing, b: Standing) -> Test | None:
    """The test on the seeds that both have; none where their scores cannot be paired."""
    seeds = sorted({row.seed for row in a.rows} & {row.seed for row in b.rows})
    if not seeds or a.scores.shape[1] != b.scores.shape[1]:
        return None
    pick = [[[row.seed for row in one.rows].index(seed) for seed in seeds] for one in (a, b)]
    return paired_test(a.scores[pick[0]], b.scores[pick[1]])
