"""What a rule can measure on a run, by name, as a matrix [seeds, items].

accuracy       the final held-out accuracy, an item for each held-out task
start, gain    that before training, and the difference, on the held-out tasks that were answered at the start, too
pass@K         the chance that one of K replies is right (K at most the replies of the design)
fall           how far the held-out accuracy ends below its highest point during the run
tokens, flops  what the run used; also sampled, trained, samples, steps, seconds
reach(X)       the share of the budget after which the held-out accuracy was X; 1 where it never was
after(M, X)    how much the held-out accuracy still rose after the recorded metric M first was X
M@end          a recorded metric: its mean over the last tenth of the steps; also @start, @mean, @min, @max, @change
X minus Y      the difference of two measures of the same run
anything else  what a probe of this name measured (compare/probes.py)
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from burnish.compare.board import scores
from burnish.compare.job import RunResult
from burnish.compare.statistics import Matrix, pass_matrix, reached

SPENT = ("tokens", "flops", "sampled", "trained", "samples", "steps", "seconds")
_CALL = re.compile(r"(reach|after)\(\s*([^()]*?)\s*\)")
_RECORDED = re.compile(r"(.+)@(start|end|mean|min|max|change)")


@dataclass(frozen=True)
class Runs:
    """The finished runs of a study: by arm, then by task, in the order of seeds."""

    rows: Mapping[str, Mapping[str, Sequence[RunResult]]]
    tasks: tuple[str, ...]

    def matrix(self, arm: str, measure: str, task: str | None = None) -> Matrix:
        """[seeds, items]: the items of all tasks beside each other, of the seeds that all tasks have.

        A measure with one number a run is averaged over the tasks: they were chosen, not drawn, and two numbers are no
        sample of tasks to resample.
        """
        by_task = self.rows.get(arm, {})
        chosen = [task] if task else list(self.tasks)
        lists = [by_task.get(name, ()) for name in chosen]
        common = set.intersection(*({row.seed for row in rows} for rows in lists)) if lists else set()
        if not common:
            raise Missing(f"no finished run of {arm!r}" + (f" on {task}" if task else ""))
        each = [_of([row for row in rows if row.seed in common], measure) for rows in lists]
        beside: Matrix = np.hstack(each)
        if all(x.shape[1] == 1 for x in each):
            return np.asarray(beside.mean(1, keepdims=True))
        return beside

    def together(self, arms: Sequence[str], measure: str) -> list[Matrix]:
        """The matrices of several arms, of as many seeds as all of them have."""
        matrices = [self.matrix(arm, measure) for arm in arms]
        seeds = min(len(x) for x in matrices)
        return [x[:seeds] for x in matrices]


class Missing(Exception):
    """A rule needs runs, or a measure, that are not there."""


def _of(rows: Sequence[RunResult], measure: str) -> Matrix:
    if " minus " in measure:
        return _less(rows, *measure.split(" minus ", 1))
    if measure == "accuracy":
        return scores(rows)
    if measure == "start":
        return np.array([[row.curve[0].value] for row in rows])
    if measure == "gain":
        return np.array([_gain(row) for row in rows])
    if measure == "fall":
        return np.array([[_fall(row)] for row in rows])
    if measure in SPENT:
        return np.array([[sum(row.spent[name] for name in _parts(measure))] for row in rows], dtype=float)
    if match := re.fullmatch(r"pass@(\d+)", measure):
        return _passes(rows, int(match[1]))
    if match := _CALL.fullmatch(measure):
        return np.array([[_called(row, match[1], match[2])] for row in rows])
    if (match := _RECORDED.fullmatch(measure)) and all(match[1] in row.recorded for row in rows):
        return np.array([[_series(row.recorded[match[1]], match[2])] for row in rows])
    if all(measure in row.probed for row in rows):
        return np.array([row.probed[measure] for row in rows])
    known = sorted({name for row in rows for name in (*row.probed, *(f"{metric}@end" for metric in row.recorded))})
    names = ", ".join(known) or "none"
    raise Missing(f"the runs of {rows[0].label!r} have no {measure!r}; besides the accuracy there are {names}")


def _less(rows: Sequence[RunResult], one: str, other: str) -> Matrix:
    """The difference of two measures; of different tasks, item by item in the order in which they were drawn."""
    a, b = _of(rows, one), _of(rows, other)
    if a.shape != b.shape:
        a, b = a.mean(1, keepdims=True), b.mean(1, keepdims=True)
    difference: Matrix = a - b
    return difference


def _parts(measure: str) -> tuple[str, ...]:
    return ("sampled", "trained") if measure == "tokens" else (measure,)


def _passes(rows: Sequence[RunResult], k: int) -> Matrix:
    if any(k > row.replies for row in rows):
        raise Missing(f"pass@{k} needs {k} replies to each task, and {rows[0].label!r} has {rows[0].replies}")
    return pass_matrix([row.right for row in rows], rows[0].replies, k)


def _gain(row: RunResult) -> list[float]:
    """The final score of each task less that before training, of the tasks that were answered then."""
    before = [int(c) for c in row.curve[0].right]
    if not before or not row.right:
        return [row.value - row.curve[0].value]
    return [count / row.replies - first for count, first in zip(row.right, before, strict=False)]


def _fall(row: RunResult) -> float:
    """The highest point of the curve less its end, without the luck of the highest of several noisy points.

    The highest point is looked for with half of the held-out tasks and measured with the other half, both ways.
    """
    marks = [mark for mark in row.curve[:-1] if mark.right]
    if not marks:
        return 0.0
    n = len(marks[0].right)
    end = [count / row.replies for count in row.right[:n]]
    points = np.array([*([int(c) for c in mark.right] for mark in marks), end])
    halves = points[:, ::2].mean(1), points[:, 1::2].mean(1)
    falls = [there[int(here.argmax())] - there[-1] for here, there in (halves, halves[::-1])]
    return float(np.mean(falls))


def _called(row: RunResult, name: str, words: str) -> float:
    """reach(X) and after(M, X)."""
    curve = [(mark.at, mark.value) for mark in row.curve]
    if name == "reach":
        at = reached(curve, float(words))
        return 1.0 if at is None else min(1.0, at / row.budget.limit)
    metric, _, level = words.rpartition(",")
    values = row.recorded.get(metric.strip(), ())
    first = next((i + 1 for i, value in enumerate(values) if value is not None and value >= float(level)), None)
    if first is None:
        return 0.0
    then = float(np.interp(first, [mark.steps for mark in row.curve], [mark.value for mark in row.curve]))
    return row.curve[-1].value - then


def _series(values: Sequence[float | None], which: str) -> float:
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known:
        raise Missing("a recorded metric has no values")
    tenth = max(1, len(known) // 10)
    start, end = float(np.mean(known[:tenth])), float(np.mean(known[-tenth:]))
    named = {"start": start, "end": end, "change": end - start, "mean": float(np.mean(known))}
    return {**named, "min": min(known), "max": max(known)}[which]
