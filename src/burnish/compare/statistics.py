"""Statistics of comparisons as pure functions: bootstrap intervals, permutation tests, Holm's correction, pass@k.

The scores of one candidate are a matrix x[s, t]: the score of the run with seed s on held-out task t. Seeds and tasks
are crossed, because all runs are evaluated on the same tasks. Both are samples of a larger population, so both are
resampled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, product
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

from burnish.core import randomness
from burnish.evals.evaluate import Interval, pass_at_k

RESAMPLES = 2000
PERMUTATIONS = 10_000
ALL_RELABELLINGS = 20_000  # up to this number all permutations of the runs are tried, else PERMUTATIONS random ones
LEVEL = 0.95  # of an interval, unless another is asked for

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Test:
    """The difference of the means of a and b with its interval, and the p-values of two permutation tests.

    runs   p-value for chance in training (seeds): the runs of a and b are permuted
    tasks  p-value for the choice of held-out tasks: the two scores of a task, averaged over seeds, are swapped
    p      the larger of both, because a difference must be significant in both tests
    least  the smallest `runs` that this number of runs can give
    """

    difference: Interval
    runs: float
    tasks: float
    least: float

    @property
    def p(self) -> float:
        return max(self.runs, self.tasks)


def crossed_draws(x: ArrayLike, *, key: object = "seeds", tasks_key: object = "tasks") -> Matrix:
    """Means of resampled matrices: seeds and tasks are resampled with replacement, independently of each other.

    This is the bootstrap for crossed samples (Owen 2007, "The pigeonhole bootstrap"). It is conservative: variance that
    belongs neither to a seed nor to a task is counted once for each. The keys select the random numbers.
    """
    x = _matrix(x)
    seeds, tasks = x.shape
    by_seed, by_task = _resampled(str(key), seeds), _resampled(str(tasks_key), tasks)
    sums: Matrix = np.einsum("rs,st,rt->r", by_seed, x, by_task, optimize=True)
    means: Matrix = sums / (seeds * tasks)
    return means


@lru_cache(maxsize=64)
def _resampled(key: str, n: int) -> NDArray[np.int64]:
    """[RESAMPLES, n]: how often each of n items is drawn in a resample."""
    return randomness.generator(key, n).multinomial(n, np.full(n, 1 / n), RESAMPLES)


def interval(x: ArrayLike, bounds: tuple[float, float] | None = (0.0, 1.0), level: float = LEVEL) -> Interval:
    """The mean of x[s, t] with a 95% interval over seeds and tasks, or one of another level.

    The 2.5% and 97.5% percentiles of `crossed_draws`, widened around the mean by a factor for few seeds:

        sqrt(t(S-1)^2 v_s + t(T-1)^2 v_t) / (1.96 sd(draws))        v_s = var(seed means)/S, v_t = var(task means)/T

    with t(df) the 97.5% quantile of Student's t. Resampling underestimates the variance of S values by (S-1)/S, and the
    variance itself is estimated from S values only. Without the factor, the coverage is 78% at S = 3 if the variance
    lies in the seeds. With one seed the interval is over tasks only, for that run.
    """
    x = _matrix(x)
    parts = [
        (float(means.var(ddof=1)) / len(means), len(means) - 1) for means in (x.mean(1), x.mean(0)) if len(means) > 1
    ]
    return _stretched(float(x.mean()), parts, crossed_draws(x), bounds, level)


def contrast(a: ArrayLike, b: ArrayLike) -> Interval:
    """mean(a) - mean(b) of two unpaired sets of units, with a 95% interval over units and tasks.

    a[u, t] and b[u, t] are scores of trials on the same tasks. Units are resampled within each set, tasks jointly for
    both; the interval is widened as in `interval`, with a separate variance for each set (Welch).
    """
    a, b = _matrix(a), _matrix(b)
    draws = crossed_draws(a, key="contrast a", tasks_key="contrast") - crossed_draws(
        b, key="contrast b", tasks_key="contrast"
    )
    sets = [(x.mean(1), len(x)) for x in (a, b)]
    parts = [(float(means.var(ddof=1)) / n, n - 1) for means, n in sets if n > 1]
    gaps = a.mean(0) - b.mean(0)
    if len(gaps) > 1:
        parts.append((float(gaps.var(ddof=1)) / len(gaps), len(gaps) - 1))
    return _stretched(float(a.mean() - b.mean()), parts, draws, (-1.0, 1.0))


def _stretched(
    mean: float,
    parts: Sequence[tuple[float, int]],
    draws: Matrix,
    bounds: tuple[float, float] | None,
    level: float = LEVEL,
) -> Interval:
    """The percentiles of draws, widened by Student's t; parts are (variance of the mean, degrees of freedom)."""
    total, spread = sum(v for v, _ in parts), float(draws.std())
    if total <= 1e-15 or spread <= 1e-12:
        return Interval(mean, mean, mean)
    low, high = (float(q) for q in np.quantile(draws, ((1 - level) / 2, (1 + level) / 2)))
    normal = NormalDist().inv_cdf((1 + level) / 2)
    stretch = math.sqrt(sum(v * t_quantile(df, level) ** 2 for v, df in parts)) / (normal * spread)
    low, high = mean - stretch * (mean - low), mean + stretch * (high - mean)
    return Interval(mean, max(bounds[0], low), min(bounds[1], high)) if bounds else Interval(mean, low, high)


@lru_cache(maxsize=4096)
def _t_quantile(freedom: float, level: float) -> float:
    angle = np.linspace(0.0, math.pi / 2, 40_001)
    density = np.cos(angle) ** (freedom - 1)
    share = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return math.sqrt(freedom) * math.tan(float(np.interp(level, share / share[-1], angle)))


def t_quantile(freedom: float, level: float = LEVEL) -> float:
    """The 97.5% quantile of Student's t, or (1 + level) / 2 of it.

    With t = sqrt(df) tan(a) its density is cos(a)^(df-1), which is integrated.
    """
    return _t_quantile(round(min(max(freedom, 1.0), 1e4), 2), level)


def signed_test(x: ArrayLike) -> Test:
    """Two-sided tests of mean(x) = 0 where x[s, t] is a contrast of several candidates on the same seeds and tasks.

    Under the null hypothesis the contrast of a seed, and that of a task, is as likely with the other sign: p is the
    share of the signs (all 2^S of them for up to 14 seeds) whose mean is at least as large.
    """
    x = _matrix(x)
    seeds = x.mean(1)
    n = len(seeds)
    if 2**n <= ALL_RELABELLINGS:
        signs = np.array(list(product((1.0, -1.0), repeat=n)))
        runs = float((np.abs(signs @ seeds) >= abs(float(seeds.sum())) - 1e-12).mean())
    else:
        runs = _flipped(seeds)
    tasks = _flipped(x.mean(0)) if x.shape[1] > 1 else 0.0
    return Test(interval(x, bounds=None), runs, tasks, max(2.0 / 2**n, 1 / PERMUTATIONS) if n > 1 else 1.0)


def paired_test(a: ArrayLike, b: ArrayLike) -> Test:
    """Two-sided permutation tests of two candidates on the same seeds and tasks: see `Test`.

    Runs: under the null hypothesis the 2S runs are exchangeable. p is the share of permutations whose difference of
    means is at least as large. Tasks: under the null hypothesis the scores of a and b on a task are exchangeable.
    """
    a, b = _matrix(a), _matrix(b)
    if a.shape != b.shape:
        raise ValueError(
            f"scores of {a.shape} and {b.shape} (seeds, tasks) cannot be paired; use the same seeds and tasks"
        )
    by_run, least = _relabelled(a.mean(1), b.mean(1))
    by_task = _flipped((a - b).mean(0)) if a.shape[1] > 1 else 0.0  # one score per run has no tasks
    return Test(interval(a - b, bounds=None), by_run, by_task, least)


def _relabelled(a: Matrix, b: Matrix) -> tuple[float, float]:
    """The p-value of the permutation test over runs, and the smallest possible p-value."""
    n, pooled = len(a), np.concatenate([a, b])
    count = math.comb(2 * n, n)
    if count <= ALL_RELABELLINGS:
        sides = np.array(list(combinations(range(2 * n), n)))
        least = 2 / count if n > 1 else 1.0
    else:
        draw = randomness.generator("relabelled", n)
        sides = np.argsort(draw.random((PERMUTATIONS, 2 * n)), axis=1)[:, :n]
        sides[0] = np.arange(n)  # include the observed labelling
        least = 1 / PERMUTATIONS
    sums = pooled[sides].sum(1)
    differences = np.abs(2 * sums - pooled.sum()) / n
    observed = abs(float(a.mean() - b.mean()))
    return float((differences >= observed - 1e-12).mean()), least


def _flipped(difference: Matrix) -> float:
    """The p-value of a mean difference under random signs of the tasks' differences."""
    draw = randomness.generator("flipped", len(difference))
    signs = draw.integers(0, 2, (PERMUTATIONS - 1, len(difference)), dtype=np.int8).astype(np.float32) * 2 - 1
    means = np.abs(signs @ difference.astype(np.float32)) / len(difference)
    return float((1 + (means >= abs(float(difference.mean())) - 1e-7).sum()) / PERMUTATIONS)


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values corrected for multiple tests: the k-th smallest of m times (m - k + 1), never decreasing (Holm 1979).

    Rejecting results of at most 5% limits the probability of any false positive to 5%, also if tests are dependent.
    """
    order = sorted(range(len(p_values)), key=lambda i: p_values[i])
    adjusted, highest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = highest
    return adjusted


def pass_matrix(right: ArrayLike, replies: int, k: int) -> Matrix:
    """pass@k for every seed and task, unbiased: 1 - C(n-c, k) / C(n, k) for c correct replies of n."""
    table = np.array([pass_at_k(replies, c, k) for c in range(replies + 1)])
    shares: Matrix = table[np.asarray(right, dtype=int)]
    return shares


def reached(curve: Sequence[tuple[float, float]], threshold: float) -> float | None:
    """The first x at which a linearly interpolated curve (x, y) reaches the threshold; None if it never does."""
    before: tuple[float, float] | None = None
    for x, y in curve:
        if y >= threshold:
            if before is None or y == before[1]:
                return x
            return before[0] + (x - before[0]) * (threshold - before[1]) / (y - before[1])
        before = x, y
    return None


def _matrix(x: ArrayLike) -> Matrix:
    matrix = np.asarray(x, dtype=np.float64)
    assert matrix.ndim == 2 and matrix.size, "scores must be a matrix [seeds, tasks]"
    return matrix
