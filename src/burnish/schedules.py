"""Any coefficient may be a number or a schedule of the clock; `at` resolves either."""

from __future__ import annotations

import math
from collections.abc import Callable

from burnish.nouns import Clock

Schedule = float | Callable[[Clock], float]


def at(value: Schedule, clock: Clock) -> float:
    """The number that a coefficient has now."""
    return float(value(clock)) if callable(value) else float(value)


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


def after(step: int, value: float = 1) -> Callable[[Clock], float]:
    """0 before the step, `value` from it on: for warm-ups, as a phase's `times` or a coefficient."""
    return lambda clock: value if clock.step >= step else 0


def before(step: int, value: float = 1) -> Callable[[Clock], float]:
    """`value` before the step, 0 from it on: for what comes first, as a phase's `times`."""
    return lambda clock: value if clock.step < step else 0


def warmup_then(shape: str, warmup: int, floor: float = 0.0) -> Callable[[Clock], float]:
    """The learning-rate multiplier: a linear warm-up over `warmup` steps, then constant, linear or cosine to `floor`."""
    shapes: dict[str, Callable[[float], float]] = {
        "constant": lambda x: 1.0,
        "linear": lambda x: 1 - (1 - floor) * x,
        "cosine": lambda x: floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * x)),
    }
    if shape not in shapes:
        raise ValueError(f"unknown learning-rate schedule {shape!r}; choose one of {', '.join(shapes)}")
    curve = shapes[shape]

    def schedule(clock: Clock) -> float:
        if clock.step < warmup:
            return (clock.step + 1) / warmup
        return curve((clock.step - warmup) / max(1, clock.of - warmup))

    return schedule


def _progress(clock: Clock, over: int | None) -> float:
    return clock.fraction if over is None else min(1.0, clock.step / max(1, over))
