"""What beginning rewards early gains: seconds for sampling and scoring a step, with a reward that waits for every
reply.

OMP_NUM_THREADS=1 python scripts/measure_rewards.py --out benchmarks/results/rewards.json
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
from burnish.tasks.task_set import rewarded

STEPS = 4  # the first of them is not counted


def main() -> None:
    asked = _flags()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for turn in range(asked.rounds):
        for workers in asked.workers:
            rows.append({"round": turn, "workers": workers, **measured(workers, asked.wait)})
            print(json.dumps(rows[-1]), flush=True)
    found = {}
    for workers in asked.workers:
        mine = [row for row in rows if row["workers"] == workers]
        found[str(workers)] = {
            name: round(statistics.median(row[name] for row in mine), 3) for name in ("rollout", "score")
        }
    summary = {
        "model": "tiny",
        "replies": 64,
        "wait_a_reply": asked.wait,
        "cores": os.cpu_count(),
        "median_seconds": found,
    }
    print(json.dumps(found))
    if asked.out:
        asked.out.write_text(json.dumps({**summary, "rows": rows}, indent=1) + "\n")


def measured(workers: int, wait: float) -> dict[str, Any]:
    """GRPO in memory, 8 prompts x 8 replies: the mean seconds of rollout and score, which wait for each other."""
    task = source("add")

    def waits(completions: list[str], answer: list[str]) -> list[float]:
        time.sleep(wait * len(completions))
        return [float(right in text) for text, right in zip(completions, answer, strict=True)]

    built = find("grpo").build(rewarded(task, waits, workers=workers))
    settings = Settings(prompts=8, max_new_tokens=64, lr=1e-5)
    models = build(built.models, resolve("tiny"), settings, device="cpu")
    load = os.getloadavg()[0]
    counted = [report.seconds for report in loop_as_set(built, models, settings, steps=STEPS)][1:]
    found = {room: sum(seconds[room] for seconds in counted) / len(counted) for room in ("rollout", "score")}
    return {**{room: round(seconds, 3) for room, seconds in found.items()}, "load": round(load, 2)}


def _flags() -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--wait", type=float, default=0.05, help="seconds that the reward takes over a reply")
    flags.add_argument("--rounds", type=int, default=3)
    flags.add_argument("--workers", type=int, nargs="*", default=[0, 1, 4])
    flags.add_argument("--out", type=Path)
    return flags.parse_args()


if __name__ == "__main__":
    main()
