"""Lagrange multipliers of constraints on mean rewards, and their updates."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Squash:
    """How a raw number becomes a multiplier, and the slope of that."""

    of: Callable[[float], float]
    slope: Callable[[float], float]


def sigmoid(x: float) -> float:
    """1 / (1 + e^-x), without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


# Constrained RLHF (arXiv 2310.04373): tanh for equality (a multiplier may be negative and push a reward down to its
# target), the sigmoid for inequality (at least). At raw 0 the one begins with 0, the other with 1/2.
EQUALITY = Squash(math.tanh, lambda x: 1 - math.tanh(x) ** 2)
INEQUALITY = Squash(sigmoid, lambda x: sigmoid(x) * (1 - sigmoid(x)))


class SquashedMultipliers:
    """mu_i = squash(raw_i), by gradient descent on sum_i mu_i (mean return_i - theta_i), SGD with momentum.

        g_i = squash'(raw_i) (mean return_i - theta_i);   v_i <- momentum v_i + g_i;   raw_i <- raw_i - lr v_i

    A reward above its threshold loses weight, one below gains. Sigmoid, raw 0, mean 0.5, theta 0.44, lr 0.1: the
    gradient is 0.06 / 4 = 0.015 and raw becomes -0.0015.
    """

    def __init__(self, thresholds: Mapping[str, float], squash: Squash, lr: float, momentum: float) -> None:
        self.name = "squashed_multipliers"
        self.thresholds, self.squash, self.lr, self.momentum = dict(thresholds), squash, lr, momentum
        self.raw = dict.fromkeys(thresholds, 0.0)
        self.velocity = dict.fromkeys(thresholds, 0.0)

    def value(self, name: str) -> float:
        return self.squash.of(self.raw[name])

    def heard(self, means: Mapping[str, float]) -> None:
        """Move each multiplier by the mean return of its reward."""
        for name, theta in self.thresholds.items():
            slope = self.squash.slope(self.raw[name]) * (means[name] - theta)
            self.velocity[name] = self.momentum * self.velocity[name] + slope
            self.raw[name] -= self.lr * self.velocity[name]

    def state_dict(self) -> dict[str, Any]:
        return {"raw": dict(self.raw), "velocity": dict(self.velocity)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.raw = {name: float(x) for name, x in state["raw"].items()}
        self.velocity = {name: float(x) for name, x in state["velocity"].items()}


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

    def state_dict(self) -> dict[str, Any]:
        return {"multipliers": dict(self.multipliers)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.multipliers = {name: float(x) for name, x in state["multipliers"].items()}
