"""The leaderboard as data: JSON with all numbers of the report, CSV with one line per run."""

from __future__ import annotations

import csv
import io
import json
import math

from burnish.compare.board import Board, Pair, Standing
from burnish.evals.evaluate import Interval

COLUMNS = (
    "label",
    "method",
    "task",
    "seed",
    "status",
    "value",
    "steps",
    "sampled",
    "trained",
    "samples",
    "flops",
    "seconds",
    "reason",
)


def as_json(board: Board, command: str) -> str:
    """All numbers of the report as JSON."""
    data: dict[str, object] = {
        "command": command,
        "task": board.task,
        "budget": {"unit": board.budget.unit, "limit": board.budget.limit},
        "measure": board.measure,
        "threshold": board.threshold,
        "standings": [_standing(one) for one in board.standings],
        "pairs": [_pair(pair) for pair in board.pairs],
        "failures": [{"label": row.label, "seed": row.seed, "reason": row.reason} for row in board.failures],
    }
    return json.dumps(data, indent=1) + "\n"


def _standing(one: Standing) -> dict[str, object]:
    return {
        "label": one.label,
        "mean": one.value.mean,
        "interval": _ends(one.value),
        "start": one.start,
        "by_seed": one.by_seed,
        "standard_deviation": _finite(one.spread),
        "pass": {str(k): {"mean": v.mean, "interval": _ends(v)} for k, v in one.passes.items()},
        "curve": [{"at": x, "mean": v.mean, "interval": _ends(v)} for x, v in one.curve],
        "to_threshold": one.reach,
        "cost": {name: one.cost(name) for name in ("steps", "sampled", "trained", "samples", "flops", "seconds")},
    }


def _pair(pair: Pair) -> dict[str, object]:
    return {
        "a": pair.a,
        "b": pair.b,
        "difference": pair.test.difference.mean,
        "interval": _ends(pair.test.difference),
        "p_runs": pair.test.runs,
        "p_tasks": pair.test.tasks,
        "p_holm": pair.adjusted,
        "distinguishable": pair.distinct,
    }


def as_csv(board: Board) -> str:
    """One line per run as CSV."""
    out = io.StringIO()
    lines = csv.writer(out, lineterminator="\n")
    lines.writerow(COLUMNS)
    for row in [*(row for one in board.standings for row in one.rows), *board.failures]:
        columns = {
            **row.spent,
            "label": row.label,
            "method": row.method,
            "task": row.task,
            "seed": row.seed,
            "status": row.status,
            "value": "" if math.isnan(row.value) else row.value,
            "reason": row.reason,
        }
        lines.writerow([columns.get(name, "") for name in COLUMNS])
    return out.getvalue()


def _ends(value: Interval) -> list[float]:
    return [value.low, value.high]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
