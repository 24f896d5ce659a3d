"""A thousand environments whose steps take half a second, beside the engine; and branches that are played again.

    python benchmarks/slow_environments.py               writes results/slow_environments.json

Episodes have 3 steps of 0.5 s, so that no rollout can take less than 1.5 s. In the rows "branches" half of the episodes
of each task branch off the others (arpo), and their environments, which cannot be copied, are played again up to there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import threading
import time
from pathlib import Path
from typing import Any

import torch

from burnish.compose.passes import Additions, composed
from burnish.core.step import Settings, Step
from burnish.core.types import Clock
from burnish.methods.table import find
from burnish.models.build import build
from burnish.models.known_models import TINY
from burnish.tasks.environment import EnvSource

RESULTS = Path(__file__).parent / "results" / "slow_environments.json"
SECONDS, STEPS = 0.5, 3


class Slow:
    """A step waits in a thread."""

    def reset(self, seed: int) -> str:
        self.seed, self.steps = seed, 0
        return f"Guess my number, {seed % 50} to {seed % 50 + 9}. {STEPS} guesses."

    def step(self, action: str) -> tuple[str, float, bool]:
        time.sleep(SECONDS)
        return self.answer(action)

    def answer(self, action: str) -> tuple[str, float, bool]:
        self.steps += 1
        said = "higher" if (len(action) + self.seed) % 2 else "lower"
        return said, float(len(action) % 3), self.steps == STEPS


class Waits(Slow):
    """A step waits in the loop of the process: an async environment."""

    async def step(self, action: str) -> tuple[str, float, bool]:  # type: ignore[override]
        await asyncio.sleep(SECONDS)
        return self.answer(action)


def measure(name: str, kind: type, tasks: int, **given: Any) -> dict[str, Any]:
    """Seconds of a rollout, and how many threads it had at once, after a small one as a warm-up."""
    source = EnvSource(kind, "slow")
    method = composed(find(name).build(source, **given), Additions(name, source))
    models = build(method.models, TINY, Settings(), device="cpu")
    settings = Settings(max_new_tokens=8, prompts=tasks)
    [phase] = method.phases
    phase.rollout.call([source.task("train", 10_000)], Step(Clock(0, 9), models, settings))
    most, ended = [threading.active_count()], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            most.append(threading.active_count())

    threading.Thread(target=watch, daemon=True).start()
    asked = [source.task("train", i) for i in range(tasks)]
    before, cpu = time.perf_counter(), time.process_time()
    groups = phase.rollout.call(asked, Step(Clock(1, 9), models, settings))
    row: dict[str, Any] = {"seconds": round(time.perf_counter() - before, 2)}
    ended.set()
    row["cpu seconds"], row["threads"] = round(time.process_time() - cpu, 2), max(most)
    traces = [trace for group in groups for trace in group.traces]
    failed = sum("failed" in str(trace.note.get("stopped")) for trace in traces)
    return {"method": name, "environment": kind.__name__, "episodes": len(traces), "failed": failed, **row}


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--episodes", type=int, default=1000)
    reader.add_argument("--branches", type=int, default=64)
    reader.add_argument("--results", type=Path, default=RESULTS)
    told = reader.parse_args()
    rows = []
    half = {"budget": 8, "fresh": 4}
    for name, kind, episodes, given in (
        ("grpo", Waits, told.episodes, {"n": 8}),
        ("grpo", Slow, told.episodes, {"n": 8}),
        ("arpo", Slow, told.branches, half),
        ("arpo", Waits, told.branches, half),
    ):
        rows.append(measure(name, kind, max(1, episodes // 8), **given))
        print(json.dumps(rows[-1]), flush=True)
    machine = {"machine": platform.processor() or platform.machine(), "threads": torch.get_num_threads()}
    content = {"script": "benchmarks/slow_environments.py", **machine, "step": SECONDS, "steps": STEPS, "rows": rows}
    told.results.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
