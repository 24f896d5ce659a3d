"""The embedded model learns tasks with real tools: by imitating the expert, then by playing; episodes won, by seed.

    python benchmarks/work_tasks.py                 writes results/work_tasks.json (half an hour on two cores)
    python benchmarks/work_tasks.py --tasks sql:1 --seeds 0

A run that is finished in the folder is not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from pathlib import Path
from typing import Any

from openai_tools import BURNISH, HERE, read

RESULTS = HERE / "results" / "work_tasks.json"
COMMON = ["--max-new-tokens", "48", "--eval-tasks", "40", "--eval-every", "0"]
SFT = ["--lr", "1e-3"]
STEPS = {"shell:1": 20}  # of SFT; 60 for the other tasks
GRPO = ["--steps", "8", "--lr", "2e-4", "--prompts", "8", "--n", "8"]
T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # Student's t by the number of seeds


def trained(out: Path, words: list[str]) -> dict[str, Any]:
    """A run's held-out share of episodes won, before and after, greedy and at temperature 1."""
    if "after" not in read(out):
        subprocess.run([*BURNISH, "train", *words, *COMMON, "--out", str(out), "--quiet"], check=True)
    return read(out)


def one(folder: Path, task: str, seed: int) -> dict[str, Any]:
    """Imitation, and play from there."""
    own = ["--task", task, "--seed", str(seed)]
    out = folder / f"{task.replace(':', '')}-seed{seed}"
    sft = trained(out / "sft", ["sft", *own, *SFT, "--steps", str(STEPS.get(task, 60))])
    grpo = trained(out / "grpo", ["grpo", *own, *GRPO, "--model", str(out / "sft" / "model")])
    return {"seed": seed, "before": sft["before"], "sft": sft["after"], "grpo": grpo["after"], "from": grpo["before"]}


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--folder", type=Path, default=HERE.parent / ".bench" / "work_tasks")
    reader.add_argument("--tasks", default="sql:1,shell:1,lookup:1,repo:1")
    reader.add_argument("--seeds", default="0,1,2")
    told = reader.parse_args()
    known: dict[str, Any] = json.loads(RESULTS.read_text())["tasks"] if RESULTS.exists() else {}
    for seed in map(int, told.seeds.split(",")):
        for task in told.tasks.split(","):
            runs = [run for run in known.get(task, {}).get("runs", []) if run["seed"] != seed]
            runs = sorted([*runs, one(told.folder, task, seed)], key=lambda run: int(run["seed"]))
            gains = [run["grpo"]["sampled"] - run["from"]["sampled"] for run in runs]
            known[task] = {"runs": runs}
            if len(gains) > 1:
                half = T95[len(gains)] * statistics.stdev(gains) / len(gains) ** 0.5
                middle = statistics.mean(gains)
                known[task]["gain_of_grpo"] = [round(x, 4) for x in (middle, middle - half, middle + half)]
            sft = {"options": " ".join(SFT), "steps": STEPS, "steps of the others": 60}
            content = {"script": "benchmarks/work_tasks.py", "model": "tiny", "sft": sft, "tasks": known}
            content |= {"grpo": " ".join(GRPO), "common": " ".join(COMMON)}
            RESULTS.write_text(json.dumps(content, indent=1) + "\n")
            print(task, seed, json.dumps(runs[-1] if runs[-1]["seed"] == seed else runs[0]), flush=True)


if __name__ == "__main__":
    main()
