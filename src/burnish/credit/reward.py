"""Numbers that the training of reward models reads: margins by grade, ratings, bootstrap samples, clusters of users."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch

from burnish.core import randomness
from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.credit.preference import fill

GRADES = {
    "significantly better": 1.0,
    "better": 2 / 3,
    "slightly better": 1 / 3,
    "negligibly better": 0.0,
    "unsure": 0.0,
}
GOOD = ("chosen", "demo")  # tags of replies that are right by the data


def grade_of(value: object, column: str) -> float:
    """The number of a grade: a number, or one of Llama 2's words (arXiv 2307.09288, the set 1, 2/3, 1/3, 0)."""
    if isinstance(value, str) and value.strip().lower() in GRADES:
        return GRADES[value.strip().lower()]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"column {column!r} has the grade {value!r}; grades are numbers or {', '.join(GRADES)}")
    return float(value)


@supplies("stream:margin")
def graded_margin(column: str, offset: float = 0.0) -> Part:
    """Stream "margin" = offset + the grade of the preference in a column of the data."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        fill(trace, "margin", offset + grade_of(group.task.given[column], column))

    return per_trace(
        write,
        name=f"graded_margin({column})",
        reads=frozenset({f"given:{column}"}),
        writes=frozenset({"stream:margin"}),
    )


def ratings_of(given: Mapping[str, object], names: tuple[str, ...], tags: frozenset[str], length: float) -> list[float]:
    """The ratings of a reply with these tags; length: what counts as its rating "length" without a column."""
    defaults = {"quality": float(bool(tags & set(GOOD))), "length": length}
    return [rating_of(given, name, tags, defaults) for name in names]


def rating_of(given: Mapping[str, object], name: str, tags: frozenset[str], defaults: Mapping[str, float]) -> float:
    """One rating of a reply; NaN where there is none."""
    columns = [*(f"{tag}_{name}" for tag in sorted(tags)), name]
    value = next((given[column] for column in columns if given.get(column) is not None), None)
    return defaults.get(name, math.nan) if value is None else grade_of(value, name)


@supplies("stream:bags")
def bags(heads: int, *, stream: str = "bags") -> Part:
    """Stream "bags" [T, k]: how often each head's bootstrap sample holds the task, Poisson with mean 1.

    The number depends on the task and the head alone, so that it is the same in every epoch.
    """

    def write(trace: Trace, group: Group, step: Step) -> None:
        drawn = [
            _poisson(randomness.rng("bag", step.clock.seed, group.task.key, head).random()) for head in range(heads)
        ]
        trace.streams[stream] = torch.tensor(drawn, dtype=torch.float32).expand(len(trace), heads).clone()

    return per_trace(
        write, name=f"bags({heads})", reads=frozenset({"tokens:task"}), writes=frozenset({f"stream:{stream}"})
    )


def _poisson(u: float) -> float:
    """The number with that quantile of a Poisson distribution with mean 1."""
    number, chance, below = 0, math.exp(-1), 0.0
    while number < 20 and u >= below + chance:
        below, number = below + chance, number + 1
        chance /= number
    return float(number)


@supplies("stream:noise")
def normal_noise(size: int, *, stream: str = "noise") -> Part:
    """Stream "noise" [T, size]: standard normal numbers, the same on all tokens of a group, new in every step."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        for group in groups:
            drawn = torch.tensor(normal(size, step, group.task.key), dtype=torch.float32)
            for trace in group.traces:
                trace.streams[stream] = drawn.expand(len(trace), size).clone()
        return groups

    return Part(
        name=f"normal_noise({size})",
        call=call,
        reads=frozenset({"tokens:task"}),
        writes=frozenset({f"stream:{stream}"}),
    )


def normal(size: int, step: Step, *what: object) -> list[float]:
    """Standard normal numbers that depend on the seed, the step and the purpose alone."""
    dice = randomness.rng(step.clock.seed, "normal", step.clock.step, step.clock.tick, *what)
    return [dice.gauss(0.0, 1.0) for _ in range(size)]
