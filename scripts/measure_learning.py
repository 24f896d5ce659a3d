"""Every registered method on the embedded model: does it learn, and how fast? Writes benchmarks/learning.json.

    python scripts/measure_learning.py --workers 14 --device cuda

Methods that need another model (a teacher, a reward model, a value model, a DPO policy) get one that is trained first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import transformers

from burnish.methods.table import METHODS, Entry, load_all
from burnish.report.store import open_store
from burnish.run.config import method_fields

OUT = Path(__file__).parent.parent / "benchmarks" / "learning.json"
TASK, STEPS = "add", 30
LONGER = {"archer": {"task": "guess:1", "steps": 60, "critic_warmup": 10}}  # what needs more than the others


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--workers", type=int, default=1, help="runs at a time")
    flags.add_argument("--device", default="cpu")
    flags.add_argument("--seed", type=int, default=0)
    flags.add_argument("--steps", type=int, default=STEPS)
    flags.add_argument(
        "--limit", type=float, default=1e9, help="seconds after which no more runs are started or waited for"
    )
    flags.add_argument("--only", nargs="*", help="these methods alone")
    asked = flags.parse_args()
    load_all()
    start = time.time()
    with tempfile.TemporaryDirectory() as folder:
        names = asked.only or list(METHODS)
        helpers = {"teacher": ["sft"], "dpo_policy": ["dpo"], "reward": ["reward_model"]}
        work = Work(Path(folder), asked.device, asked.seed, asked.steps, start + asked.limit)
        models = {key: work.model(key, words) for key, words in helpers.items()}
        found = work.all({name: arguments(METHODS[name], models) for name in names}, asked.workers)
    stored = json.loads(OUT.read_text())["methods"] if OUT.is_file() and asked.only else {}
    environment = {"torch": torch.__version__, "transformers": transformers.__version__, "device": asked.device}
    OUT.write_text(
        json.dumps({"environment": environment, "methods": {**stored, **found}}, indent=1, sort_keys=True) + "\n"
    )
    for name, row in sorted(found.items()):
        print(f"{name:28} {row['task']:8} {row['before']:.3f} -> {row['after']:.3f}  {row['seconds']:.0f} s")
    missing = sorted(set(names) - set(found))
    print("not measured:", ", ".join(missing) or "none")


def arguments(entry: Entry, models: dict[str, Path]) -> dict[str, Any]:
    """What a method needs and has no default for: a model directory, by the name of the argument."""
    found: dict[str, Any] = {"task": entry.trial.get("task", TASK)}
    for name, parameter in method_fields(entry).items():
        if parameter.default is parameter.empty:
            kind = "dpo_policy" if "dpo" in name else "reward" if "reward" in name or "value" in name else "teacher"
            found[name] = str(models[kind])
    return found


class Work:
    """Runs of the command line, several at a time."""

    def __init__(self, folder: Path, device: str, seed: int, steps: int, deadline: float) -> None:
        self.folder, self.device, self.seed, self.steps, self.deadline = folder, device, seed, steps, deadline

    def model(self, key: str, words: list[str]) -> Path:
        self.started(f"helper-{key}", [*words, "--task", TASK, "--steps", "15", "--eval-tasks", "0"]).wait()
        return self.folder / f"helper-{key}" / "model"

    def started(self, name: str, words: list[str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "burnish.cli", "train", *words, "--out", str(self.folder / name), "--quiet"]
        log = (self.folder / f"{name}.log").open("w")
        options = ["--device", self.device, "--seed", str(self.seed), "--save-every", "0"]
        return subprocess.Popen(
            [*command, *options], stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )

    def all(self, methods: dict[str, dict[str, Any]], workers: int) -> dict[str, Any]:
        """Every method's run, `workers` at a time, until the deadline."""
        waiting = sorted(methods, key=lambda name: name not in LONGER)
        running: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
        found: dict[str, Any] = {}
        while (waiting or running) and time.time() < self.deadline:
            while waiting and len(running) < workers:
                name = waiting.pop(0)
                words = [name, "--eval-every", str(max(1, self.steps // 4)), "--eval-tasks", "200"]
                for key, value in {"steps": self.steps, **methods[name], **LONGER.get(name, {})}.items():
                    words += [f"--{key.replace('_', '-')}", str(value)]
                running[name] = (self.started(name, words), time.time())
            for name, (process, began) in list(running.items()):
                if process.poll() is not None:
                    del running[name]
                    row = self.row(name, str(LONGER.get(name, methods[name])["task"]), time.time() - began)
                    if row:
                        found[name] = row
            time.sleep(0.5)
        for process, _ in running.values():
            process.kill()
        return found

    def row(self, name: str, task: str, seconds: float) -> dict[str, Any] | None:
        folder = self.folder / name
        try:
            outcome = json.loads((folder / "evaluation.json").read_text())
            with open_store(folder) as store:
                steps = store.metrics()
            before, after = outcome["before"]["value"]["mean"], outcome["after"]["value"]["mean"]
        except (OSError, KeyError, ValueError, TypeError):
            print(f"{name} failed: {(self.folder / f'{name}.log').read_text()[-400:]}")
            return None
        curve = [[0, before]]
        curve += [[row["step"] + 1, value] for row in steps for key, value in row.items() if key.startswith("heldout/")]
        curve.append([len(steps), after])
        measure = outcome["before"]["name"]
        return {"task": task, "steps": len(steps), "seed": self.seed, "measure": measure, "before": before, "after": after,
                "curve": curve, "seconds": round(seconds, 1)}  # fmt: skip


if __name__ == "__main__":
    main()
