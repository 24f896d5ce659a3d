"""Sweeps: grid and random search over a method's flags, and the marginal effect of each value."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from burnish.compare.board import Board, Standing
from burnish.compare.plan import Candidate, settings_of, shown
from burnish.compare.statistics import Matrix, contrast, interval
from burnish.core import randomness
from burnish.evals.evaluate import Interval


@dataclass(frozen=True)
class Grid:
    """A flag and its values for a grid search."""

    name: str
    values: tuple[str, ...]


@dataclass(frozen=True)
class Range:
    """A flag that is sampled from low to high: uniformly (as an integer if both ends are), or log-uniformly."""

    name: str
    low: float
    high: float
    log: bool = False
    whole: bool = False

    def draw(self, trial: int) -> float:
        """The value of a trial, a deterministic function of its number."""
        u = randomness.rng("sweep", self.name, self.low, self.high, trial).random()
        if self.log:
            return float(f"{math.exp(math.log(self.low) + u * math.log(self.high / self.low)):.3g}")
        if self.whole:
            return min(int(self.high), int(self.low + u * (self.high - self.low + 1)))
        return float(f"{self.low + u * (self.high - self.low):.3g}")


@dataclass(frozen=True)
class Effect:
    """Marginal effect of a flag's value (or a third of its range): trials, their mean, difference to the others."""

    flag: str
    value: str
    trials: int
    mean: float
    difference: Interval
    matched: bool


def grid(words: str) -> Grid:
    """Parse --grid lr=1e-5,1e-4"""
    name, equals, text = words.partition("=")
    values = tuple(value.strip() for value in text.split(",") if value.strip())
    if not equals or not values:
        raise ValueError(f"--grid {words!r} names no values; write --grid lr=1e-5,1e-4")
    if len(set(values)) < len(values):
        raise ValueError(f"--grid {words!r} names a value twice; name each once")
    return Grid(name.strip().replace("-", "_"), values)


def ranged(words: str) -> Range:
    """Parse --random eps=0.1:0.4, or --random lr=1e-6:1e-3:log"""
    name, equals, rest = words.partition("=")
    ends = rest.split(":")
    try:
        low, high = float(ends[0]), float(ends[1])
    except (ValueError, IndexError):
        raise ValueError(
            f"--random {words!r} is not a range; write --random eps=0.1:0.4 or --random lr=1e-6:1e-3:log"
        ) from None
    if not equals or len(ends) > 3 or (len(ends) == 3 and ends[2] != "log"):
        raise ValueError(f"--random {words!r} is not a range; write --random eps=0.1:0.4 or --random lr=1e-6:1e-3:log")
    if not low < high or (len(ends) == 3 and low <= 0):
        raise ValueError(
            f"--random {words!r} is an empty range; the first end must be the smaller (and above 0 for log)"
        )
    whole = all(end.strip().lstrip("-").isdigit() for end in ends[:2])
    return Range(name.strip().replace("-", "_"), low, high, len(ends) == 3, whole)


def trials(method: str, grids: Sequence[Grid], ranges: Sequence[Range], many: int | None) -> list[Candidate]:
    """The settings of a sweep: all cells of the grid; with ranges, `many` samples that cycle through the cells."""
    names = [*(one.name for one in grids), *(one.name for one in ranges)]
    if not names:
        raise ValueError("say which flags to try: --grid lr=1e-5,1e-4 or --random eps=0.1:0.4")
    if len(set(names)) < len(names):
        raise ValueError(f"the flag {next(n for n in names if names.count(n) > 1)!r} is named twice; name each once")
    cells = [
        dict(zip([g.name for g in grids], values, strict=True))
        for values in itertools.product(*(g.values for g in grids))
    ]
    count = many or (len(cells) if not ranges else max(12, len(cells)))
    order = (
        randomness.shuffled(len(cells), "sweep", *names) if count < len(cells) or ranges else list(range(len(cells)))
    )
    settings: list[Candidate] = []
    for trial in range(min(count, len(cells)) if not ranges else count):
        flags: dict[str, object] = {**cells[order[trial % len(cells)]], **{one.name: one.draw(trial) for one in ranges}}
        label = ", ".join(f"{name}={shown(value)}" for name, value in flags.items())
        if label not in [one.label for one in settings]:
            settings.append(Candidate(label, method, flags))
    return settings


def run_once(
    base: Candidate, settings: Sequence[Candidate], shared: Mapping[str, object], task: str
) -> tuple[tuple[Candidate, ...], str]:
    """What to run, and the label of the baseline: the defaults, which are not run again where a setting is the same."""
    default = settings_of(base, shared, task)
    same = next((one.label for one in settings if settings_of(one, shared, task) == default), None)
    return (tuple(settings), same) if same else ((base, *settings), base.label)


def effects(
    board: Board, candidates: Sequence[Candidate], grids: Sequence[Grid], ranges: Sequence[Range]
) -> list[Effect]:
    """The marginal effect of each value of each flag.

    If the whole grid was run, trials that differ only in this flag are compared, seed by seed. Otherwise the trials
    with this value are compared with all other trials. Ranges are split into thirds.
    """
    standings = {one.label: one for one in board.standings}
    trials = [(one, standings[one.label]) for one in candidates if one.label in standings]
    full = not ranges and len(trials) == math.prod(len(g.values) for g in grids)
    marginals: list[Effect] = []
    for one in grids:
        by_value = {value: [pair for pair in trials if pair[0].flags[one.name] == value] for value in one.values}
        marginals += _of_values(one.name, by_value, full)
    for other in ranges:
        edges = np.quantile([float(c.flags[other.name]) for c, _ in trials], (1 / 3, 2 / 3)) if trials else (0.0, 0.0)
        thirds: dict[str, list[tuple[Candidate, Standing]]] = {}
        for c, s in sorted(trials, key=lambda pair: float(pair[0].flags[other.name])):
            value = float(c.flags[other.name])
            upper = next((edge for edge in edges if value <= edge), None)
            name = f"above {edges[1]:.3g}" if upper is None else f"up to {upper:.3g}"
            thirds.setdefault(name, []).append((c, s))
        marginals += _of_values(other.name, thirds, False)
    return marginals


def _of_values(flag: str, by_value: dict[str, list[tuple[Candidate, Standing]]], matched: bool) -> list[Effect]:
    by_value = {value: pairs for value, pairs in by_value.items() if pairs}
    if len(by_value) < 2:
        return []
    marginals = []
    for value, pairs in by_value.items():
        rest = [pair for other, more in by_value.items() if other != value for pair in more]
        scores = np.array([s.scores.mean(0) for _, s in pairs])
        paired = _matched(flag, pairs, rest) if matched else None
        if paired is not None:
            difference = interval(paired, bounds=(-1.0, 1.0))
        else:
            difference = contrast(scores, np.array([s.scores.mean(0) for _, s in rest]))
        marginals.append(Effect(flag, value, len(pairs), float(scores.mean()), difference, paired is not None))
    return marginals


def _matched(
    flag: str, pairs: list[tuple[Candidate, Standing]], rest: list[tuple[Candidate, Standing]]
) -> Matrix | None:
    """[others x seeds, tasks]: a trial minus the mean of the trials that differ only in this flag.

    None if the seeds of the trials differ.
    """
    rows = []
    for c, s in pairs:
        alike = [o for d, o in rest if all(d.flags[k] == v for k, v in c.flags.items() if k != flag)]
        seeds = [row.seed for row in s.rows]
        if not alike or any([row.seed for row in other.rows] != seeds for other in alike):
            return None
        rows.append(s.scores - np.mean([other.scores for other in alike], axis=0))
    return np.concatenate(rows)
