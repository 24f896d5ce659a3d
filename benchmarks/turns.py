"""Episodes of many turns against one long reply: sampled tokens a second of the same engine.

    python benchmarks/turns.py --model smollm2 --device cuda --tokens 32 64 128     writes results/turns.json
    python benchmarks/turns.py --episodes 32 --repeats 3                            the embedded model on a CPU

An episode has 8 turns of so many tokens; the environment answers at once with a short sentence. The single-turn side
samples as many tokens for each prompt in one reply. No reply ends before its limit. The sides alternate.
"""

from __future__ import annotations

import argparse
import cProfile
import importlib
import itertools
import json
import platform
import pstats
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from burnish.core.roles import roles
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group
from burnish.models.build import build
from burnish.models.known_models import resolve
from burnish.rollout.play import play
from burnish.rollout.sample import sample
from burnish.tasks.environment import EnvSource

plays = importlib.import_module("burnish.rollout.play")  # the package has a function of that name
RESULTS = Path(__file__).parent / "results" / "turns.json"
TURNS = 8
NEVER = -1  # no token has this id
WARM = 3  # CUDA graphs are captured when a size comes for the second time


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


def written(place: Path) -> Path:
    """A model of SmolLM2-135M's shape with random weights, and the tokenizer of the embedded model, in a folder."""
    import shutil

    import transformers

    shutil.copytree(resolve("tiny"), place, dirs_exist_ok=True)
    config = transformers.LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
        num_key_value_heads=3, max_position_embeddings=4096, tie_word_embeddings=True, bos_token_id=None,
        eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(place)
    return place


def profiled(model: str, device: str, episodes: int, each: int, file: Path) -> None:
    """Where one rollout of episodes spends its time on the host, after three warm-ups: functions by their own time."""
    settings = Settings(max_new_tokens=each)
    models = build(roles(), resolve(model), settings, device=device)
    models["policy"].chat.stops = (NEVER,)  # type: ignore[misc]
    tasks = [EnvSource(Talk).task("train", i) for i in range(episodes)]
    for repeat in range(WARM):
        play(1).call(tasks, Step(Clock(repeat, 99), models, settings))
    profile = cProfile.Profile()
    profile.runcall(play(1).call, tasks, Step(Clock(WARM, 99), models, settings))
    with file.open("w") as out:
        pstats.Stats(profile, stream=out).sort_stats("tottime").print_stats(40)


def measure(model: str, device: str, episodes: int, each: int, repeats: int) -> dict[str, Any]:
    """Tokens a second of each side, in turn, after three warm-ups."""
    long, short = Settings(max_new_tokens=TURNS * each), Settings(max_new_tokens=each)
    models = build(roles(), resolve(model), long, device=device)
    models["policy"].chat.stops = (NEVER,)  # type: ignore[misc]
    source = EnvSource(Talk)
    tasks = [source.task("train", i) for i in range(episodes)]
    sides = {"single": (sample(1), long), "turns": (play(1), short)}
    rates: dict[str, list[float]] = {name: [] for name in sides}
    tokens: dict[str, int] = {}
    for repeat in range(repeats + WARM):
        for name, (rollout, settings) in sides.items():
            start = time.perf_counter()
            groups = rollout.call(tasks, Step(Clock(repeat, 99), models, settings))
            took = time.perf_counter() - start
            tokens[name] = sampled(groups)
            if repeat >= WARM:
                rates[name].append(round(tokens[name] / took))
    middle = {name: statistics.median(found) for name, found in rates.items()}
    machine = torch.cuda.get_device_name(0) if device == "cuda" else platform.processor() or platform.machine()
    return {
        "model": model,
        "machine": machine,
        "torch": torch.__version__,
        "episodes": episodes,
        "turns": TURNS,
        "tokens_a_turn": each,
        "sampled_tokens": tokens,
        "tokens_per_second": rates,
        "share_of_single": round(middle["turns"] / middle["single"], 3),
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--model", default="tiny")
    asked.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    asked.add_argument("--episodes", type=int, default=256)
    asked.add_argument("--tokens", type=int, nargs="+", default=[32], help="of a turn; several are measured in turn")
    asked.add_argument("--repeats", type=int, default=5)
    asked.add_argument("--parts", type=int, nargs="+", default=[plays.PARTS], help="in which answers go on (play.py)")
    asked.add_argument("--results", type=Path, default=RESULTS)
    asked.add_argument("--random", type=Path, help="write a model of SmolLM2's shape to this folder and measure that")
    asked.add_argument("--profile", type=Path, help="also profile a rollout of episodes, and write it to this file")
    told = asked.parse_args()
    told.model = str(written(told.random)) if told.random else told.model
    known = json.loads(told.results.read_text()) if told.results.exists() else {}
    for each, parts in itertools.product(told.tokens, told.parts):
        plays.PARTS = parts
        found = {"parts": parts, **measure(told.model, told.device, told.episodes, each, told.repeats)}
        named = f", {parts} parts" if len(told.parts) > 1 else ""
        known[f"{told.model}, {each} tokens a turn{named}, on {found['machine']}"] = found
        told.results.write_text(json.dumps(known, indent=1) + "\n")
        shown = {key: found[key] for key in ("parts", "tokens_a_turn", "tokens_per_second", "share_of_single")}
        print(json.dumps(shown), flush=True)
    plays.PARTS = told.parts[0]
    if told.profile:
        profiled(told.model, told.device, told.episodes, told.tokens[0], told.profile)


if __name__ == "__main__":
    main()
