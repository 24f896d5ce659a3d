"""Any coefficient may be a number or a schedule of the clock; `at` resolves either."""

from __future__ import annotations

import math
from collections.abc import Callable

from burnish.core.types import Clock

Schedule = float | Callable[[Clock], float]


def at(value: Schedule, clock: Clock) -> float:
    """The value of a coefficient at this time."""
    return float(value(clock)) if callable(value) else float(value)


def is_zero(value: Schedule | None) -> bool:
    """Whether a coefficient is the constant 0. A schedule is not, whatever its values."""
    return isinstance(value, int | float) and value == 0


def steps_of(span: float, of: int) -> int:
    """A number of steps; below 1 it is a share of a run of `of` steps, at least one step, and 0 is none."""
    return int(span) if span >= 1 or span == 0 else max(1, round(span * of))


def linear(start: float, end: float, over: int | None = None) -> Callable[[Clock], float]:
    """A straight line from start to end over the run, or over the first `over` steps and then constant."""

    def schedule(clock: Clock) -> float:
        return start + (end - start) * _progress(clock, over)

    return schedule


def cosine(start: float, end: float, over: int | None = None) -> Callable[[Clock], float]:
    """Half a cosine from start to end over the run, or over the first `over` steps and then constant."""

    def schedule(clock: Clock) -> float:
        return end + (start - end) * 0.5 * (1 + math.cos(math.pi * _progress(clock, over)))

    return schedule


def every(k: int, offset: int = 0) -> Callable[[Clock], int]:
    """1 at steps offset, offset + k, ...; 0 otherwise: for a phase's `times`."""
    return lambda clock: int((clock.step - offset) % k == 0 and clock.step >= offset)


def after(step: float, value: float = 1, *, early: int = 0) -> Callable[[Clock], float]:
    """0 before the step, `value` from it on: for warm-ups, as a phase's `times` or as a coefficient.

    step   below 1: a share of all steps
    early  how many steps sooner it begins: 1 in the last step of what comes before
    """
    return lambda clock: value if clock.step >= steps_of(step, clock.of) - early else 0


def before(step: float, value: float = 1) -> Callable[[Clock], float]:
    """`value` before the step (below 1: a share of all), 0 from it on: for a first stage, as a phase's `times`."""
    return lambda clock: value if clock.step < steps_of(step, clock.of) else 0


def warmup_then(shape: str, warmup: float, floor: float = 0.0) -> Callable[[Clock], float]:
    """Learning-rate multiplier: linear warm-up over `warmup` steps (below 1: a share of all), then constant, linear or
    cosine to `floor`.
    """
    shapes: dict[str, Callable[[float], float]] = {
        "constant": lambda x: 1.0,
        "linear": lambda x: 1 - (1 - floor) * x,
        "cosine": lambda x: floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * x)),
    }
    if shape not in shapes:
        raise ValueError(f"unknown learning-rate schedule {shape!r}; choose one of {', '.join(shapes)}")
    curve = shapes[shape]

    def schedule(clock: Clock) -> float:
        steps = warmup if warmup >= 1 else round(warmup * clock.of)
        if clock.step < steps:
            return (clock.step + 1) / steps
        return curve((clock.step - steps) / max(1, clock.of - steps))

    return schedule


def _progress(clock: Clock, over: int | None) -> float:
    return clock.fraction if over is None else min(1.0, clock.step / max(1, over))
