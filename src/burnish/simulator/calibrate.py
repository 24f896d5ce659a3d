"""Rates of a system from its synchronous rows: coordinate descent on the squared logarithm of predicted / published.

A release on one kind of GPU has one rate for training mixtures of experts; a model has one launch time per layer; the
older release takes `slower` times as long for it; MFU of dense models and fixed seconds are shared. Starting values
hold what the rows do not decide: a small penalty pulls towards them. Rows with a lag are never used.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from burnish.simulator.costs import Rates
from burnish.simulator.published import Published
from burnish.simulator.shapes import Costs

PULL = 0.02  # of a rate towards its start, against the squared error of a row
START = {"training": 0.35, "experts": 0.07, "launch": 1e-4, "slower": 1.3, "fixed": 9.0}


@dataclass(frozen=True)
class Calibration:
    """Fitted values by name: training, fixed, slower, "experts GROUP", "launch MODEL". oldest: the release that
    `slower` is about."""

    values: Mapping[str, float]
    oldest: str

    def rates(self, row: Published) -> Rates:
        """The rates by which a row is simulated."""
        launch = self.values[f"launch {row.model}"]
        return Rates(
            training=self.values["training"],
            expert_training=self.values[f"experts {row.group}"],
            decoding=0.5,
            launch=launch * (self.values["slower"] if row.system == self.oldest else 1.0),
            fixed=self.values["fixed"],
        )


def start(rows: Sequence[Published]) -> Calibration:
    """The values before any row is looked at."""
    values = {name: START[name] for name in ("training", "fixed", "slower")}
    values |= {f"experts {row.group}": START["experts"] for row in rows}
    values |= {f"launch {row.model}": START["launch"] for row in rows}
    return Calibration(values, min(row.system for row in rows))


def fit(
    models: Mapping[str, Costs], rows: Sequence[Published], hold: Sequence[str] = (), rounds: int = 40
) -> Calibration:
    """Fit to the rows without a lag. hold: values that stay as they start."""
    at_start = start(rows)
    used = [row for row in rows if not row.lag]

    def cost(values: Mapping[str, float]) -> float:
        now = Calibration(values, at_start.oldest)
        missed = [math.log(row.simulated(models[row.model], now.rates(row)).step_seconds / row.seconds) for row in used]
        pulled = [math.log(values[name] / at_start.values[name]) for name in values]
        return sum(x * x for x in missed) + PULL * sum(x * x for x in pulled)

    values = dict(at_start.values)
    least, moves = cost(values), {name: 0.5 for name in values if name not in hold}
    for _ in range(rounds):
        for name, move in moves.items():
            for sign in (1, -1):
                tried = {**values, name: values[name] * math.exp(sign * move)}
                if (now := cost(tried)) < least:
                    values, least = tried, now
                    break
            else:
                moves[name] = move / 2
        if max(moves.values()) < 0.02:
            break
    return Calibration(values, at_start.oldest)
