"""Decision rules on ratios, shares of runs, ranks, and the best of several arms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from burnish.compare.statistics import Matrix, crossed_draws, holm, t_quantile
from burnish.core import randomness
from burnish.studies.measures import Missing, Runs
from burnish.studies.rules import FAILS, HOLDS, TINY, UNDECIDED, WITHIN, Contrast, Part, amount, unit_of

RESAMPLES = 2000
Z = 1.959964


@dataclass(frozen=True)
class Ratio:
    """mean(of) / mean(to) is at least `holds` (or at most, where `fails` is larger)."""

    of: str
    to: str
    measure: str
    holds: float
    fails: float

    @property
    def arms(self) -> tuple[str, ...]:
        return (self.of, self.to)

    def parts(self, runs: Runs) -> list[Part]:
        """The percentiles of resampled ratios: seeds of each arm apart, tasks of both together; widened by Student's t
        for few seeds. A denominator that may be 0 leaves it open on both sides."""
        a, b = runs.together(self.arms, self.measure)
        above, below = crossed_draws(a, key="of"), crossed_draws(b, key="to")
        if float(np.quantile(below, 0.025)) <= 0 or float(b.mean()) <= 0:
            return [self._part(float("nan"), -math.inf, math.inf, -math.inf, math.inf)]
        mean, ratios = float(a.mean() / b.mean()), above / below
        ends = []
        for level in (0.95, WITHIN):
            low, high = np.quantile(ratios, ((1 - level) / 2, (1 + level) / 2))
            wider = t_quantile(max(1, len(a) - 1), level) / t_quantile(1e4, level)
            ends += [mean - wider * (mean - float(low)), mean + wider * (float(high) - mean)]
        return [self._part(mean, *ends)]

    def _part(self, mean: float, low: float, high: float, low90: float, high90: float) -> Part:
        return Part(str(self), mean, low, high, low90, high90, "ratio", zero=self.fails, one=self.holds)

    def verdict(self, parts: Sequence[Part]) -> str:
        (part,) = parts
        if self.holds >= self.fails:
            return HOLDS if part.low >= self.holds else FAILS if part.high <= self.fails else UNDECIDED
        return HOLDS if part.high <= self.holds else FAILS if part.low >= self.fails else UNDECIDED

    def __str__(self) -> str:
        return f"{self.measure} of {self.of} / that of {self.to}"

    def said(self) -> str:
        side, other = ("at least", "at most") if self.holds >= self.fails else ("at most", "at least")
        return (
            f"{self} is {side} {self.holds:g}, with its whole 95% interval; it does not hold if the interval is "
            f"{other} {self.fails:g}"
        )


@dataclass(frozen=True)
class Share:
    """The share of the runs of some arms in which a measure is at least (or at most) a number, is at least `holds`."""

    of: tuple[str, ...]
    measure: str
    holds: float
    at_least: float | None = None
    at_most: float | None = None

    @property
    def arms(self) -> tuple[str, ...]:
        return self.of

    def parts(self, runs: Runs) -> list[Part]:
        values = [float(v) for arm in self.of for v in runs.matrix(arm, self.measure).mean(1)]
        hits = sum(v >= self.at_least if self.at_least is not None else v <= (self.at_most or 0.0) for v in values)
        wide, near = wilson(hits, len(values), Z), wilson(hits, len(values), 1.644854)
        return [Part(str(self), hits / len(values), *wide, *near, "share", one=self.holds)]

    def verdict(self, parts: Sequence[Part]) -> str:
        (part,) = parts
        return HOLDS if part.mean >= self.holds else FAILS if part.high < self.holds else UNDECIDED

    def __str__(self) -> str:
        side, bound = (">=", self.at_least) if self.at_least is not None else ("<=", self.at_most)
        words = amount(bound or 0.0, unit_of(self.measure))
        return f"runs of {', '.join(self.of)} with {self.measure} {side} {words}"

    def said(self) -> str:
        return (
            f"{self} are at least {self.holds:.0%} of all; it does not hold if the upper end of Wilson's 95% interval "
            "is below"
        )


def wilson(hits: int, n: int, z: float) -> tuple[float, float]:
    """Wilson's interval of a share."""
    p, more = hits / n, z * z / n
    centre, half = p + more / 2, z * math.sqrt(p * (1 - p) / n + more / (4 * n))
    return max(0.0, (centre - half) / (1 + more)), min(1.0, (centre + half) / (1 + more))


@dataclass(frozen=True)
class Correlation:
    """Spearman's correlation of two measures over the arms (means over seeds): at least, or at most, a number.

    x_of: the arms on which x is measured, one for each of `of`, where they are others (the reward model of a policy).
    It holds where the estimate is there and the 95% bootstrap interval over arms is on that side of `bound`; it fails
    where the estimate is on the other side of `bound`.
    """

    of: tuple[str, ...]
    x: str
    y: str
    bound: float
    at_least: float | None = None
    at_most: float | None = None
    x_of: tuple[str, ...] = ()

    @property
    def arms(self) -> tuple[str, ...]:
        return (*self.of, *self.x_of)

    def parts(self, runs: Runs) -> list[Part]:
        xs = np.array([float(runs.matrix(arm, self.x).mean()) for arm in self.x_of or self.of])
        ys = np.array([float(runs.matrix(arm, self.y).mean()) for arm in self.of])
        drawn = randomness.generator("correlation", len(xs)).integers(0, len(xs), (RESAMPLES, len(xs)))
        draws = np.array([rho for i in drawn if not math.isnan(rho := spearman(xs[i], ys[i]))])
        rho = spearman(xs, ys)
        if math.isnan(rho) or not len(draws):
            raise Missing(f"{self.x} or {self.y} is the same for all arms, so they have no correlation")
        low, high, low90, high90 = (float(q) for q in np.quantile(draws, (0.025, 0.975, 0.05, 0.95)))
        one = self.at_least if self.at_least is not None else self.at_most
        return [Part(str(self), rho, low, high, low90, high90, "rank", zero=self.bound, one=one or 0.0)]

    def verdict(self, parts: Sequence[Part]) -> str:
        (part,) = parts
        if self.at_least is not None:
            if part.mean >= self.at_least and part.low > self.bound:
                return HOLDS
            return FAILS if part.mean <= self.bound else UNDECIDED
        assert self.at_most is not None
        if part.mean <= self.at_most and part.high < self.bound:
            return HOLDS
        return FAILS if part.mean >= self.bound else UNDECIDED

    def __str__(self) -> str:
        return f"rank correlation of {self.x} and {self.y} over {len(self.of)} arms"

    def said(self) -> str:
        side, other, bound = ("at least", "above", self.at_least)
        if self.at_most is not None:
            side, other, bound = "at most", "below", self.at_most
        return (
            f"{self} is {side} {bound:g} with its 95% interval {other} {self.bound:g}; it does not hold if it is on "
            f"the other side of {self.bound:g}"
        )


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """The correlation of the ranks; ties share their mean rank. NaN where all values of one are the same."""
    a, b = _ranks(x), _ranks(y)
    if a.std() == 0 or b.std() == 0:
        return float("nan")
    return float(((a - a.mean()) * (b - b.mean())).mean() / (a.std() * b.std()))


def _ranks(x: np.ndarray) -> np.ndarray:
    _, back, counts = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: np.ndarray = (last - (counts - 1) / 2)[back]
    return ranks


@dataclass(frozen=True)
class Best:
    """One of several arms beats a baseline by `margin`; it fails where all of them are within the margin of it."""

    of: tuple[str, ...]
    against: str
    measure: str
    margin: float

    @property
    def arms(self) -> tuple[str, ...]:
        return (*self.of, self.against)

    def parts(self, runs: Runs) -> list[Part]:
        """The largest difference, with the p-value of that arm after Holm's correction for the choice among them, and
        the interval of equivalence that covers those of all arms."""
        each = [Contrast({arm: 1.0, self.against: -1.0}, self.measure).part(runs, self.margin) for arm in self.of]
        chosen = holm([part.p or 0.0 for part in each])
        best = max(range(len(each)), key=lambda i: each[i].mean)
        top = each[best]
        low90, high90 = min(p.low90 for p in each), max(p.high90 for p in each)
        return [
            Part(
                f"best of {len(each)} ({self.of[best]}) - {self.against}",
                top.mean,
                top.low,
                top.high,
                low90,
                high90,
                top.unit,
                chosen[best],
                None,
                top.least,
                0.0,
                self.margin,
            )
        ]

    def verdict(self, parts: Sequence[Part]) -> str:
        (part,) = parts
        if part.mean >= self.margin - TINY and part.significant:
            return HOLDS
        return FAILS if part.inside(self.margin) else UNDECIDED

    def said(self) -> str:
        d = amount(self.margin, unit_of(self.measure))
        return (
            f"the best of {', '.join(self.of)} is at least {d} above {self.against} (p <= 0.05 after Holm's correction,"
            f" also for the choice of the best); it does not hold if the 90% intervals of all lie within {d}"
        )


@dataclass(frozen=True)
class Agreement:
    """The tasks rank the arms alike: the mean Kendall correlation between tasks is at least `holds`."""

    of: tuple[str, ...]
    measure: str
    holds: float
    fails: float = 0.0

    @property
    def arms(self) -> tuple[str, ...]:
        return self.of

    def parts(self, runs: Runs) -> list[Part]:
        if len(runs.tasks) < 2:
            raise Missing("the ranking of several tasks is compared, and there is one task")
        values = [[runs.matrix(arm, self.measure, task).mean(1) for arm in self.of] for task in runs.tasks]
        seeds = min(len(x) for row in values for x in row)
        table = np.array([[x[:seeds] for x in row] for row in values])  # [tasks, arms, seeds]
        drawn = randomness.generator("agreement", seeds).integers(0, seeds, (RESAMPLES, seeds))
        draws = [_agreement(table[:, :, i].mean(2)) for i in drawn]
        low, high, low90, high90 = (float(q) for q in np.quantile(draws, (0.025, 0.975, 0.05, 0.95)))
        mean = _agreement(table.mean(2))
        return [Part(str(self), mean, low, high, low90, high90, "rank", zero=self.fails, one=self.holds)]

    def verdict(self, parts: Sequence[Part]) -> str:
        (part,) = parts
        if part.mean >= self.holds and part.low > self.fails:
            return HOLDS
        return FAILS if part.high < self.holds or part.mean <= self.fails else UNDECIDED

    def __str__(self) -> str:
        return f"Kendall's correlation between the rankings of {len(self.of)} arms by {self.measure}"

    def said(self) -> str:
        return (
            f"{self}, averaged over pairs of tasks, is at least {self.holds:g} with its 95% interval above "
            f"{self.fails:g}; it does not hold if it is at most {self.fails:g}, or the interval is below {self.holds:g}"
        )


def _agreement(table: Matrix) -> float:
    """The mean over pairs of rows of Kendall's tau between them."""
    taus = [kendall(a, b) for a, b in combinations(table, 2)]
    return float(np.mean(taus))


def kendall(a: np.ndarray, b: np.ndarray) -> float:
    """Concordant less discordant pairs, over all pairs; a tie counts neither way."""
    pairs = list(combinations(range(len(a)), 2))
    return sum(float(np.sign(a[i] - a[j]) * np.sign(b[i] - b[j])) for i, j in pairs) / len(pairs)
