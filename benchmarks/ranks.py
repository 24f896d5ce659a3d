"""The same steps in one process and on two ranks, side by side: sft, grpo, dpo and sft with LoRA.

    PYTHONPATH=src python3 benchmarks/ranks.py                   on the GPU where there is one, else on the CPU
    ... benchmarks/ranks.py --shape smollm2-135m --steps 5

It compares numbers, not speed: both ranks share one device, and gradients go through gloo (NCCL wants a GPU for each
rank). Models have real shapes and random weights. Results go to benchmarks/results/ranks.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from large_models import rows_of
from workload import model_directory

RESULTS = Path(__file__).with_name("results") / "ranks.json"
KEPT = ("sft/loss", "reply/loss", "pg/loss", "kl/loss", "reward", "length", "grad_norm", "mismatch/logp")
CASES: dict[str, dict[str, Any]] = {
    "sft": {"method": "sft", "lr": 1e-4},
    "grpo": {"method": "grpo", "lr": 1e-4, "n": 8, "max_new_tokens": 64, "beta": 0.04},
    "dpo": {"method": "dpo", "lr": 1e-4},
    "sft, LoRA": {"method": "sft", "lr": 1e-3, "lora": 16},
    "sft, --shard states": {"method": "sft", "lr": 1e-4, "shard": "states", "save_every": 0},
    "sft, --master-weights split": {"method": "sft", "lr": 1e-4, "master_weights": "split"},
}


class Curve:
    """The numbers of each step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []

    def on_step(self, report: Any) -> None:
        numbers = {key: round(report.metrics[key], 6) for key in KEPT if key in report.metrics}
        self.steps.append({**numbers, "seconds": round(report.seconds["step"], 3)})


def reward(completions: list[str], **_: Any) -> list[float]:
    return [float(len(text) % 7) for text in completions]


def work(model: str, steps: int, meeting: str) -> dict[str, Any]:
    """All cases, in this process or together with the other rank."""
    import torch
    import torch.distributed as dist

    import burnish

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    on_gpu = torch.cuda.is_available()
    if world > 1:
        backend = "cpu:gloo,cuda:gloo" if on_gpu else "gloo"
        dist.init_process_group(
            backend, init_method=f"file://{meeting}", rank=rank, world_size=world, timeout=timedelta(minutes=5)
        )
    found: dict[str, Any] = {}
    for name, case in CASES.items():
        options = {key: value for key, value in case.items() if key != "method"}
        rows = rows_of(case["method"], 16 * steps + 16, 60, 140)
        if case["method"] == "grpo":
            options["reward"] = reward
        curve = Curve()
        with tempfile.TemporaryDirectory() as folder:
            off = {"eval_tasks": 0, "save_every": 0, "record": 0, "out": f"{folder}/run", "prompts": 16, "steps": steps}
            burnish.train(case["method"], model=model, task=rows, callbacks=[curve], **off, **options)
        found[name] = curve.steps
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="smollm2-135m")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--meeting", help="run as one rank, and print the result")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    model = str(model_directory(given.shape, Path(".bench/models")))
    if given.meeting:
        print("RESULT " + json.dumps(work(model, given.steps, given.meeting)))
        return
    known = json.loads(given.out.read_text()) if given.out.exists() else {}
    for world in (1, 2):
        with tempfile.TemporaryDirectory() as folder:
            words = [sys.executable, __file__, "--shape", given.shape, "--steps", str(given.steps)]
            words += ["--meeting", f"{folder}/meeting"]
            env = [{**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world)} for rank in range(world)]
            ranks = [subprocess.Popen(words, env=one, stdout=subprocess.PIPE, text=True) for one in env]
            lines = [process.communicate()[0].splitlines() for process in ranks]
        answers = [line.removeprefix("RESULT ") for some in lines for line in some if line.startswith("RESULT ")]
        assert len(answers) == world, "a rank failed"
        known[f"{given.shape}, {world} rank{'s' * (world > 1)}"] = json.loads(answers[0])
        print(world, answers[0])
        given.out.write_text(json.dumps(known, indent=1) + "\n")


if __name__ == "__main__":
    main()
