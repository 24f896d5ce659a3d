"""What sampling ahead gains: seconds a step on `tiny` with a lag of 0, 1 and 2, in turn, on one thread each.

OMP_NUM_THREADS=1 python scripts/measure_lag.py --out benchmarks/results/lag.json
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from burnish.core.step import Settings
from burnish.methods.table import find
from burnish.models.build import build
from burnish.models.known_models import resolve
from burnish.run.pipeline import loop_as_set
from burnish.tasks.table import source

WARM = 2  # first steps of a run, which are not counted: the pipeline fills


def main() -> None:
    asked = _flags()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for turn in range(asked.rounds):
        for lag in asked.lags:
            rows.append({"round": turn, "lag": lag, **measured(asked.method, lag, asked.steps)})
            print(json.dumps(rows[-1]), flush=True)
    found = {
        str(lag): round(statistics.median(row["seconds_a_step"] for row in rows if row["lag"] == lag), 3)
        for lag in asked.lags
    }
    summary = {
        "method": asked.method,
        "model": "tiny",
        "cores": os.cpu_count(),
        "median_seconds_a_step": found,
        "rows": rows,
    }
    print(json.dumps(found))
    if asked.out:
        asked.out.write_text(json.dumps(summary, indent=1) + "\n")


def measured(method: str, lag: int, steps: int) -> dict[str, Any]:
    """One run in memory: seconds a step once the pipeline is full, and how much of it was waiting for replies."""
    built = find(method).build(source("add"))
    settings = Settings(prompts=16, max_new_tokens=64, lr=1e-5, lag=lag)
    models = build(built.models, resolve("tiny"), settings, device="cpu")
    waited, load, start = 0.0, os.getloadavg()[0], time.perf_counter()
    for report in loop_as_set(built, models, settings, steps=steps + WARM + lag):
        number = report.clock.step + 1
        if number == WARM:
            start, waited = time.perf_counter(), 0.0
        waited += report.seconds.get("waiting", 0.0)
        if number == WARM + steps:  # the last steps of a run with a lag sample nothing: they are not counted
            took = time.perf_counter() - start
    return {"seconds_a_step": round(took / steps, 3), "waiting": round(waited / steps, 3), "load": round(load, 2)}


def _flags() -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--method", default="grpo")
    flags.add_argument("--steps", type=int, default=8)
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--lags", type=int, nargs="*", default=[0, 1, 2])
    flags.add_argument("--out", type=Path)
    return flags.parse_args()


if __name__ == "__main__":
    main()
