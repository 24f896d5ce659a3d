"""Budgets: what a run may use, counted in one unit, the same for every method.

tokens   tokens sampled by any member, plus the tokens of every trace that an update learns from, once for each member it trains
samples  replies sampled, plus the given replies (demonstrations, pairs) that an update learns from
seconds  seconds of training steps, without evaluations and saving
flops    2 x weights for every token that is read or sampled, 4 x weights more where a backward pass follows
steps    steps of the loop
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Any

UNITS = ("tokens", "samples", "seconds", "flops", "steps")
_ALSO = {"time": "seconds"}  # other words for a unit
_SIZES = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "b": 1e9, "t": 1e12, "p": 1e15, "e": 1e18}


@dataclass(frozen=True)
class Spent:
    """What a run has used so far, in every unit."""

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
        """The amount in one unit."""
        return float(getattr(self, unit))

    def plus(self, **more: float) -> Spent:
        """The same and so much more."""
        return replace(self, **{name: getattr(self, name) + value for name, value in more.items()})

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "seconds": round(self.seconds, 3)}


@dataclass(frozen=True)
class Budget:
    """How much of one unit a run may use. It ends with the step in which it has used that much."""

    unit: str
    limit: float

    def __str__(self) -> str:
        return f"{self.unit}={written(self.limit)}"

    def used(self, spent: Spent) -> float:
        """The share of the budget that is used, 1 or more at the end."""
        return spent.of(self.unit) / self.limit

    def steps_ahead(self, spent: Spent) -> int:
        """The number of steps at which the budget will be used up, if steps go on using what they have used so far.

        At least a tenth more than there were, so that a wrong guess is mended in few goes.
        """
        if self.unit == "steps":
            return int(self.limit)
        if not spent.steps:
            return 1
        more = spent.steps * max(1.1, 1.0 / max(self.used(spent), 0.5 / spent.steps / 1000))
        return max(spent.steps + 1, int(more + 0.999))


def parse(words: str) -> Budget:
    """A budget from words such as tokens=2M, samples=5000, seconds=90, flops=3e15, steps=40."""
    unit, equals, amount = words.replace(" ", "").partition("=")
    unit = _ALSO.get(unit.lower(), unit.lower())
    if unit not in UNITS or not equals:
        raise ValueError(
            f"the budget {words!r} is not UNIT=AMOUNT with a unit of {', '.join(UNITS)}; for example tokens=2M"
        )
    found = re.fullmatch(r"([0-9][0-9_]*\.?[0-9]*(?:e[+-]?[0-9]+)?)([a-z]?)", amount.lower())
    if not found or found[2] not in _SIZES:
        raise ValueError(
            f"the amount {amount!r} of the budget is not a number; write for example {unit}=500k or {unit}=2e6"
        )
    limit = float(found[1]) * _SIZES[found[2]]
    if limit <= 0:
        raise ValueError(f"the budget {words!r} leaves nothing to use; give it more than 0")
    return Budget(unit, limit)


def written(amount: float) -> str:
    """An amount as people write it: 2M, 1.5k, 90."""
    for size, unit in ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= size:
            return f"{amount / size:.3g}{unit}"
    return f"{amount:.3g}"
