"""Budgets of runs, in one unit for all methods.

tokens   tokens sampled by any model, plus the tokens of every trace in an update, once for each model that it trains
samples  replies sampled, plus the given replies (demonstrations, pairs) in an update
seconds  seconds of training steps, without evaluations and saving
flops    2 x weights for every token of a forward pass, plus 4 x weights with a backward pass
steps    steps of the loop
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace

UNITS = ("tokens", "samples", "seconds", "flops", "steps")
_ALSO = {"time": "seconds"}  # aliases of units
_SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}


@dataclass(frozen=True)
class Spent:
    """The cost of a run so far, in every unit."""

    steps: int = 0
    sampled: int = 0
    trained: int = 0
    samples: int = 0
    flops: float = 0.0
    seconds: float = 0.0

    @property
    def tokens(self) -> int:
        return self.sampled + self.trained

    def of(self, unit: str) -> float:
        """The cost in one unit."""
        return float(getattr(self, unit))

    def plus(self, **more: float) -> Spent:
        """The sum of this cost and more."""
        return replace(self, **{name: getattr(self, name) + value for name, value in more.items()})

    def to_json(self) -> dict[str, float]:
        return {**asdict(self), "seconds": round(self.seconds, 3)}


@dataclass(frozen=True)
class Budget:
    """The budget of a run in one unit. The run ends with the step that reaches it."""

    unit: str
    limit: float

    def __str__(self) -> str:
        return f"{self.unit}={written(self.limit)}"

    def used(self, spent: Spent) -> float:
        """The used share of the budget, 1 or more at the end."""
        return spent.of(self.unit) / self.limit

    def steps_ahead(self, spent: Spent) -> int:
        """Estimated number of steps of the whole budget, from the mean cost of the steps so far.

        It is at least a tenth more than the steps so far, so that few estimates are needed.
        """
        if self.unit == "steps":
            return int(self.limit)
        if not spent.steps:
            return 1
        more = spent.steps * max(1.1, 1.0 / max(self.used(spent), 0.5 / spent.steps / 1000))
        return max(spent.steps + 1, int(more + 0.999))


def parse(words: str) -> Budget:
    """Parse a budget such as tokens=2M, samples=5000, seconds=90, flops=3e15, steps=40."""
    unit, equals, amount = words.replace(" ", "").partition("=")
    unit = _ALSO.get(unit.lower(), unit.lower())
    if unit not in UNITS or not equals:
        raise ValueError(
            f"the budget {words!r} is not UNIT=AMOUNT with a unit of {', '.join(UNITS)}; for example tokens=2M"
        )
    match = re.fullmatch(r"([0-9][0-9_]*\.?[0-9]*(?:e[+-]?[0-9]+)?)([a-z]?)", amount.lower())
    if not match or match[2] not in _SIZES:
        raise ValueError(
            f"the amount {amount!r} of the budget is not a number; write for example {unit}=500k or {unit}=2e6"
        )
    limit = float(match[1]) * _SIZES[match[2]]
    if limit <= 0:
        raise ValueError(f"the budget {words!r} is 0; it must be more than 0")
    return Budget(unit, limit)


def written(amount: float) -> str:
    """Format an amount: 2M, 1.5k, 90."""
    for size, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= size:
            return f"{amount / size:.3g}{unit}"
    return f"{amount:.3g}"
