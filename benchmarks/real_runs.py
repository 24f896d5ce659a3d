"""Real models on real data on one GPU: the runs of docs/results.md.

    python benchmarks/real_runs.py --smollm2 smollm2 --gsm8k gsm8k.jsonl --pairs hh.jsonl.gz
    python benchmarks/real_runs.py --only "sft,rl" --lanes 3            runs whose names begin so, three at a time

Each run is a call of `burnish.train` in a process of its own. gsm8k.jsonl is the training file of GSM8K as published
(question, answer), or one with the columns question and solution; one tenth of its rows is held out. The calculator
annotations (<<48/2=24>>) are taken out: with them, the loss of SFT is lower and greedy accuracy higher.
A run that failed or was stopped is made again by the same command; finished ones are kept in
benchmarks/results/real_runs.json with their held-out curves.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).with_name("results") / "real_runs.json"
SEEDS = (0, 1, 2)
RL = {"prompts": 64, "n": 8, "max_new_tokens": 256, "lr": 5e-6, "beta": 0.0, "eval_every": 20}
SFT = {"prompts": 64, "steps": 300, "eval_every": 100, "max_new_tokens": 256, "lr": 1e-4, "lr_schedule": "cosine"}
EVAL = {"eval_tasks": 737, "eval_k": 4, "save_every": 0, "record": 0}


@dataclass(frozen=True)
class Run:
    """after: the run whose final model this one starts from."""

    method: str
    task: str
    options: dict[str, Any] = field(default_factory=dict)
    model: str = "smollm2"
    after: str | None = None


def runs() -> dict[str, Run]:
    found: dict[str, Run] = {}
    for seed in SEEDS:
        found[f"sft-{seed}"] = Run("sft", "gsm8k", {**SFT, **EVAL, "seed": seed})
    for method in ("grpo", "rloo", "dr_grpo"):
        for seed in SEEDS:
            more = {key: value for key, value in RL.items() if key != "beta" or method != "dr_grpo"}
            found[f"rl-{method}-{seed}"] = Run(
                method, "gsm8k", {**more, **EVAL, "steps": 100, "seed": seed}, after=f"sft-{seed}"
            )
    longer = {"steps": 160, "lr": 2e-5, "eval_every": 80}
    for seed in SEEDS:
        for method in ("grpo", "rloo", "dr_grpo"):
            more = {key: value for key, value in RL.items() if key != "beta" or method != "dr_grpo"}
            found[f"long-{method}-{seed}"] = Run(
                method, "gsm8k", {**more, **EVAL, **longer, "seed": seed}, after=f"sft-{seed}"
            )
    for seed in SEEDS:
        lora = {**SFT, **EVAL, "seed": seed, "lora": 32, "lr": 1e-3}
        found[f"lora-{seed}"] = Run("sft", "gsm8k", lora)
        pairs = {"prompts": 64, "epochs": 2, "lr": 1e-5, "eval_tasks": 200, "eval_every": 20, "save_every": 0}
        found[f"dpo-{seed}"] = Run("dpo", "pairs", {**pairs, "record": 0, "seed": seed})
    math = {"prompts": 32, "n": 8, "max_new_tokens": 384, "lr": 2e-5, "lora": 32, "beta": 0.0, "steps": 20}
    shown = {"eval_tasks": 250, "eval_k": 1, "eval_every": 0, "save_every": 0, "record": 0}
    found["qwen-gsm8k-0"] = Run("grpo", "gsm8k", {**math, **shown}, model="qwen")
    found["qwen-code-0"] = Run("grpo", "mbpp", {**math, **shown, "max_new_tokens": 320, "eval_tasks": 90}, model="qwen")
    return found


def prepared(file: Path, folder: Path) -> Path:
    """The rows of GSM8K with the columns question and solution, without calculator annotations."""
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    if "solution" in rows[0]:
        return file
    made = folder / "gsm8k.jsonl"
    made.parent.mkdir(parents=True, exist_ok=True)
    bare = [{"question": row["question"], "solution": re.sub("<<.*?>>", "", row["answer"])} for row in rows]
    made.write_text("".join(json.dumps(row) + "\n" for row in bare))
    return made


def one(name: str, places: dict[str, str], folder: Path, changed: dict[str, Any]) -> dict[str, Any]:
    """Run it in this process."""
    import burnish

    asked = runs()[name]
    options = {**asked.options, **changed}
    model = places[asked.model] if asked.after is None else str(folder / asked.after / "model")
    curve: list[dict[str, float]] = []
    began = time.perf_counter()

    class Curve:
        def on_step(self, report: Any) -> None:
            kept = ("reward", "length", "pg/entropy", "sft/loss", "loss", "accuracy")
            found = {key: round(value, 5) for key, value in report.metrics.items() if key in kept}
            curve.append({"step": report.clock.step, "s": round(time.perf_counter() - began, 2), **found})

    result = burnish.train(
        asked.method, model=model, task=places[asked.task], out=str(folder / name), callbacks=[Curve()], **options
    )

    def told(outcome: Any) -> Any:
        if outcome is None:
            return None
        found = outcome.to_json()
        found.pop("shown")
        return found

    heldout = [row for row in result.metrics if any(key.startswith("heldout") for key in row)]
    return {
        "method": asked.method,
        "task": asked.task,
        "model": asked.model,
        "after": asked.after,
        "options": options,
        "before": told(result.before),
        "outcome": told(result.after),
        "heldout": heldout,
        "curve": curve,
        "seconds": round(time.perf_counter() - began, 1),
    }


class Board:
    """What is left to run, what was found; several lanes take from it."""

    def __init__(self, names: list[str], results: Path, again: bool) -> None:
        self.results, self.lock = results, threading.Lock()
        self.found: dict[str, Any] = json.loads(results.read_text()) if results.exists() else {}
        self.left = [name for name in names if again or name not in self.found]
        self.running: set[str] = set()

    def take(self) -> str | None:
        """A run whose start is there; "" where all that is left waits for another."""
        with self.lock:
            for name in self.left:
                after = runs()[name].after
                if after is None or (after not in self.left and after not in self.running):
                    self.left.remove(name)
                    self.running.add(name)
                    return name
            return "" if self.left else None

    def put(self, name: str, result: dict[str, Any] | None) -> None:
        with self.lock:
            self.running.discard(name)
            if result is not None:
                self.found[name] = result
                self.results.parent.mkdir(parents=True, exist_ok=True)
                self.results.write_text(json.dumps(self.found, indent=1) + "\n")


def lane(board: Board, words: list[str]) -> None:
    while (name := board.take()) is not None:
        if not name:
            time.sleep(1)
            continue
        done = subprocess.run([*words, "--here", name], capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("RESULT ")]
        result = json.loads(lines[-1].removeprefix("RESULT ")) if lines else None
        board.put(name, result)
        if result is None:
            print(f"{name}: failed\n{done.stdout[-800:]}\n{done.stderr[-2500:]}", flush=True)
            continue
        ends = {key: result[key] and result[key]["value"] for key in ("before", "outcome")}
        print(name, f"{result['seconds']} s", json.dumps(ends), flush=True)


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--smollm2", default="smollm2", help="SmolLM2-135M-Instruct: a name or a directory")
    asked.add_argument("--qwen", default="Qwen/Qwen2.5-Coder-1.5B-Instruct")
    asked.add_argument("--gsm8k", default="gsm8k.jsonl")
    asked.add_argument("--pairs", default="hh_harmless.jsonl.gz")
    asked.add_argument("--mbpp", default="mbpp.jsonl")
    asked.add_argument("--only", default="", help="beginnings of names, with commas between them")
    asked.add_argument("--lanes", type=int, default=1, help="runs at a time")
    asked.add_argument("--folder", type=Path, default=Path(".bench/real"))
    asked.add_argument("--set", type=json.loads, default={}, help='other options: {"steps": 50}')
    asked.add_argument("--results", type=Path, default=RESULTS)
    asked.add_argument("--again", action="store_true")
    asked.add_argument("--here", help="make this run in this process and print its result")
    told = asked.parse_args()
    places = {name: getattr(told, name) for name in ("smollm2", "qwen", "gsm8k", "pairs", "mbpp")}
    if told.here:
        print("RESULT " + json.dumps(one(told.here, places, told.folder, told.set)))
        return
    if Path(places["gsm8k"]).is_file():
        places["gsm8k"] = str(prepared(Path(places["gsm8k"]), told.folder))
    names = [name for name in runs() if name.startswith(tuple(told.only.split(",")))]
    board = Board(names, told.results, told.again)
    words = [sys.executable, __file__, "--folder", str(told.folder), "--set", json.dumps(told.set)]
    words += [part for name, place in places.items() for part in (f"--{name}", place)]
    lanes = [threading.Thread(target=lane, args=(board, words)) for _ in range(told.lanes)]
    for each in lanes:
        each.start()
    for each in lanes:
        each.join()


if __name__ == "__main__":
    main()
