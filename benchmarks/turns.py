"""Episodes of many turns against one long reply: sampled tokens a second of the same engine.

    python benchmarks/turns.py --model smollm2 --device cuda        writes results/turns.json
    python benchmarks/turns.py --episodes 32 --repeats 3            the embedded model on a CPU

An episode has 8 turns; the environment answers at once with a short sentence. The single-turn side samples as many
tokens for each prompt in one reply. No reply ends before its limit. The sides alternate.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from burnish.models.build import build
from burnish.models.known_models import resolve
from burnish.roles import roles
from burnish.rollout.play import play
from burnish.rollout.sample import sample
from burnish.step import Settings, Step
from burnish.tasks.environment import EnvSource
from burnish.types import Clock, Group

RESULTS = Path(__file__).parent / "results" / "turns.json"
TURNS, TOKENS = 8, 32
NEVER = -1  # no token has this id


class Talk:
    """Asks for one more sentence of a story, eight times."""

    def reset(self, task: Any, seed: int) -> str:
        self.steps = 0
        return f"Tell a long story about {seed % 997} ships, {seed % 89} sailors and an island. One sentence at a time."

    def step(self, action: str) -> tuple[str, float, bool]:
        self.steps += 1
        return "And what happened to the ships and the sailors after that?", 0.0, self.steps == TURNS


def sampled(groups: list[Group]) -> int:
    """How many tokens the policy wrote."""
    turns = (turn for group in groups for trace in group.traces for turn in trace.turns)
    return sum(len(turn) for turn in turns if turn.author == "policy")


def measure(model: str, device: str, episodes: int, repeats: int) -> dict[str, Any]:
    """Tokens a second of each side, in turn, after two warm-ups."""
    long, short = Settings(max_new_tokens=TURNS * TOKENS), Settings(max_new_tokens=TOKENS)
    models = build(roles(), resolve(model), long, device=device)
    models["policy"].chat.stops = (NEVER,)  # type: ignore[misc]
    source = EnvSource(Talk)
    tasks = [source.task("train", i) for i in range(episodes)]
    sides = {"single": (sample(1), long), "turns": (play(1), short)}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    tokens: dict[str, int] = {}
    for repeat in range(repeats + 2):
        for name, (rollout, settings) in sides.items():
            start = time.perf_counter()
            groups = rollout.call(tasks, Step(Clock(repeat, 99), models, settings))
            took = time.perf_counter() - start
            tokens[name] = sampled(groups)
            if repeat >= 2:
                rates[name].append(round(tokens[name] / took))
    middle = {name: statistics.median(found) for name, found in rates.items()}
    machine = torch.cuda.get_device_name(0) if device == "cuda" else platform.processor() or platform.machine()
    return {
        "model": model,
        "machine": machine,
        "torch": torch.__version__,
        "episodes": episodes,
        "turns": TURNS,
        "tokens_a_turn_at_most": TOKENS,
        "sampled_tokens": tokens,
        "tokens_per_second": rates,
        "share_of_single": round(middle["turns"] / middle["single"], 3),
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--model", default="tiny")
    asked.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    asked.add_argument("--episodes", type=int, default=256)
    asked.add_argument("--repeats", type=int, default=5)
    asked.add_argument("--results", type=Path, default=RESULTS)
    told = asked.parse_args()
    found = measure(told.model, told.device, told.episodes, told.repeats)
    known = json.loads(told.results.read_text()) if told.results.exists() else {}
    known[f"{told.model} on {found['machine']}"] = found
    told.results.write_text(json.dumps(known, indent=1) + "\n")
    print(json.dumps({key: found[key] for key in ("sampled_tokens", "tokens_per_second", "share_of_single")}))


if __name__ == "__main__":
    main()
