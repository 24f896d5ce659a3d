"""Lagrange multipliers of constraints on mean rewards, and their updates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from burnish.core.state import State


def sigmoid(x: float) -> float:
    """1 / (1 + e^-x), without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


@dataclass(frozen=True)
class Constraint:
    """sign (mean reward - threshold) >= 0, or = 0 where it is an equality, whose multiplier may be negative."""

    threshold: float
    sign: float = 1.0
    equality: bool = False

    def slack(self, value: float) -> float:
        return self.sign * (value - self.threshold)


class DualAscent:
    """lambda_i <- clip(lambda_i - lr mean slack_i), in [0, most], or [-most, most] for an equality.

    A constraint that is violated (negative slack) gains weight, one that holds loses it, down to 0.
    """

    def __init__(self, constraints: Mapping[str, Constraint], lr: float, most: float, start: float) -> None:
        self.name = "dual_ascent_multipliers"
        self.constraints, self.lr, self.most = dict(constraints), lr, most
        self.multipliers = dict.fromkeys(constraints, start)

    def heard(self, slacks: Mapping[str, float]) -> None:
        """Move each multiplier by the mean slack of its constraint."""
        for name, constraint in self.constraints.items():
            least = -self.most if constraint.equality else 0.0
            moved = self.multipliers[name] - self.lr * slacks[name]
            self.multipliers[name] = max(least, min(self.most, moved))

    def state_dict(self) -> State:
        return {"multipliers": dict(self.multipliers)}

    def load_state_dict(self, state: State) -> None:
        self.multipliers = {name: float(x) for name, x in state["multipliers"].items()}
