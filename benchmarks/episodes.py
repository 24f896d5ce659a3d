"""Episodes whose environments take time: rounds against continuous batching, on the embedded model.

    python benchmarks/episodes.py               writes results/episodes.json

In rounds, the replies of all running episodes are sampled together, and all environments have to answer before the next
round. Continuously, an episode whose environment has answered is sampled on while others wait. Both give the same
traces, which is checked. The latency of a step is drawn from an exponential distribution, by the seed of the episode
and the number of the step, and does not depend on the mode. The modes alternate.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import platform
import random
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from burnish.compose.passes import Additions, composed
from burnish.core.roles import roles
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group
from burnish.methods.table import find
from burnish.models.build import build
from burnish.models.known_models import TINY
from burnish.tasks.environment import EnvSource

plays = importlib.import_module("burnish.rollout.play")  # the package has a function of that name
RESULTS = Path(__file__).parent / "results" / "episodes.json"
STEPS = 5  # of an episode


class Rounds(plays.Arriving):  # type: ignore[name-defined, misc]
    """All environments answer before any episode goes on."""

    def hear(self, wait: bool) -> None:
        while wait and self._thinking:
            super().hear(wait=True)


class Slow:
    """Answers after a random time. mean: of its latency, in seconds."""

    def __init__(self, mean: float) -> None:
        self.mean = mean

    def reset(self, task: Any, seed: int) -> str:
        self.seed, self.steps = seed, 0
        return f"Guess my number, {seed % 50} to {seed % 50 + 9}. {STEPS} guesses."

    def step(self, action: str) -> tuple[str, float, bool]:
        self.steps += 1
        dice = random.Random(f"{self.seed} {self.steps} {action}")
        if self.mean:
            time.sleep(dice.expovariate(1 / self.mean))
        return dice.choice(("higher", "lower")), 0.0, self.steps == STEPS


def digest(groups: list[Group]) -> str:
    """A hash of all tokens and log-probs."""
    found = hashlib.sha256()
    for turn in (turn for group in groups for trace in group.traces for turn in trace.turns):
        found.update(turn.tokens.numpy().tobytes())
        found.update(b"" if turn.logp is None else turn.logp.numpy().tobytes())
    return found.hexdigest()[:16]


def measure(models: Any, tasks: int, n: int, mean: float, repeats: int) -> dict[str, Any]:
    """Seconds of each mode, in turn, after a warm-up; and whether all traces are the same."""
    settings = Settings(max_new_tokens=8)
    source = EnvSource(Slow, mean=mean)
    given = [source.task("train", i) for i in range(tasks)]
    modes, seconds, found = {"rounds": Rounds, "continuous": plays.Arriving}, {}, set()
    cpu: dict[str, list[float]] = {}
    for repeat in range(repeats + 1):
        for name, mode in modes.items():
            plays.Arriving, before = mode, plays.Arriving
            try:
                start, used = time.perf_counter(), time.process_time()
                groups = plays.play(n).call(given, Step(Clock(0, 1), models, settings))
                took = time.perf_counter() - start, time.process_time() - used
            finally:
                plays.Arriving = before
            found.add(digest(groups))
            if repeat:
                seconds.setdefault(name, []).append(round(took[0], 3))
                cpu.setdefault(name, []).append(round(took[1], 3))
    middle = {name: statistics.median(times) for name, times in seconds.items()}
    return {
        "episodes": tasks * n,
        "steps": STEPS,
        "mean_latency_s": mean,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "speed_up": round(middle["rounds"] / middle["continuous"], 2),
        "same_traces": len(found) == 1,
    }


class Uneven:
    """5 turns; one task in eight takes 20 times as long as the others for each of them."""

    def reset(self, task: Any, seed: int) -> str:
        self.seed, self.steps = seed, 0
        return f"Guess my number, {seed % 50} to {seed % 50 + 9}. {STEPS} guesses."

    def step(self, action: str) -> tuple[str, float, bool]:
        self.steps += 1
        time.sleep(1.0 if self.seed % 8 == 0 else 0.05)
        return "higher", 0.0, self.steps == STEPS


def waiting(models: Any, share: float | None, steps: int = 8) -> dict[str, Any]:
    """Seconds of the rollouts of some steps of 8 tasks with 4 episodes each, where a step ends at this share."""
    settings = Settings(max_new_tokens=8, prompts=8, train_when=share)
    source = EnvSource(Uneven)
    method = composed(find("grpo").build(source, n=4), Additions("grpo", source, waits=share is not None))
    [phase] = method.phases
    seconds, learned, slow = [], [], 0
    for i in range(steps):
        step = Step(Clock(i, steps), models, settings)
        start = time.perf_counter()
        groups = phase.rollout.call(phase.draw.call(step), step)
        seconds.append(round(time.perf_counter() - start, 2))
        learned.append(len(groups))
        slow += sum(group.task.given["seed"] % 8 == 0 for group in groups)
    total = round(sum(seconds), 2)
    return {"train_when": share, "seconds": seconds, "groups": learned, "slow_groups": slow, "total": total}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    asked.add_argument("--repeats", type=int, default=5)
    asked.add_argument("--uneven", action="store_true", help="measure --train-when alone, and keep the other rows")
    options = asked.parse_args()
    models = build(roles(), TINY, Settings(max_new_tokens=8), device="cpu")
    if options.uneven:
        known = json.loads(RESULTS.read_text())
        known["uneven"] = [waiting(models, share) for share in (None, 0.75, 0.5)]
        RESULTS.write_text(json.dumps(known, indent=1) + "\n")
        print(json.dumps(known["uneven"]))
        return
    rows = [
        measure(models, tasks, 8, mean, options.repeats)
        for tasks, mean in ((4, 0.0), (4, 0.2), (4, 1.0), (32, 0.2), (32, 1.0))
    ]
    uneven = [waiting(models, share) for share in (None, 0.75, 0.5)]
    content = {
        "script": "benchmarks/episodes.py",
        "model": "tiny",
        "machine": platform.processor() or platform.machine(),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "rows": rows,
        "uneven": uneven,
    }
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")
    for row in rows:
        print({key: row[key] for key in ("episodes", "mean_latency_s", "speed_up", "same_traces")})


if __name__ == "__main__":
    main()
