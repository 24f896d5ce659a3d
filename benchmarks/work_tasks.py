"""The embedded model learns tasks with real tools: by imitating the expert, then by playing; episodes won, by seed.

    python benchmarks/work_tasks.py                       writes results/work_tasks.json
    python benchmarks/work_tasks.py --workers 12          on many cores: so many runs beside each other
    python benchmarks/work_tasks.py --tasks sql:1 --seeds 0

Imitation ends at the first evaluation (every 5 steps, on 40 tasks) with a quarter of the sampled episodes won, so that
play has something to raise. A run that is finished in the folder is not run again; one that cannot run here (a shell
needs user namespaces) is noted with its reason.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from openai_tools import BURNISH, HERE, read

RESULTS = HERE / "results" / "work_tasks.json"
COMMON = ["--max-new-tokens", "48", "--save-every", "0"]
SFT = ["--lr", "1e-3", "--steps", "150", "--eval-tasks", "40", "--eval-every", "5"]
SFT += ["--eval-measure", "sampled", "--stop-at", "0.25"]
GRPO = ["--steps", "40", "--lr", "2e-4", "--prompts", "16", "--n", "8", "--eval-tasks", "100", "--eval-every", "0"]
T95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776}  # Student's t by the number of seeds


def trained(out: Path, words: list[str]) -> dict[str, Any]:
    """A run's held-out share of episodes won, before and after, greedy and at temperature 1."""
    if "after" not in read(out):
        run = subprocess.run(
            [*BURNISH, "train", *words, *COMMON, "--out", str(out), "--quiet"], capture_output=True, text=True
        )
        if run.returncode:
            raise RuntimeError((run.stderr.strip() or run.stdout.strip() or "no message").splitlines()[-1])
    return read(out)


def one(folder: Path, task: str, seed: int) -> dict[str, Any]:
    """Imitation, and play from there; the reason where a run failed."""
    own = ["--task", task, "--seed", str(seed)]
    out = folder / f"{task.replace(':', '')}-seed{seed}"
    try:
        sft = trained(out / "sft", ["sft", *own, *SFT])
        grpo = trained(out / "grpo", ["grpo", *own, *GRPO, "--model", str(out / "sft" / "model")])
    except RuntimeError as error:
        return {"seed": seed, "failed": str(error)}
    return {"seed": seed, "before": sft["before"], "sft": sft["after"], "grpo": grpo["after"], "from": grpo["before"]}


def gain(runs: list[dict[str, Any]], replies: str) -> list[float] | None:
    """The mean over seeds of what play adds to the share of episodes won, and its 95% interval; None for one seed."""
    gains = [run["grpo"][replies] - run["from"][replies] for run in runs if "failed" not in run]
    if len(gains) < 2:
        return None
    half = T95[len(gains)] * statistics.stdev(gains) / len(gains) ** 0.5
    middle = statistics.mean(gains)
    return [round(x, 4) for x in (middle, middle - half, middle + half)]


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--folder", type=Path, default=HERE.parent / ".bench" / "work_tasks")
    reader.add_argument("--tasks", default="sql:1,lookup:1,interpreter:1,shell:1,repo:1")
    reader.add_argument("--seeds", default="0,1,2")
    reader.add_argument("--workers", type=int, default=1)
    reader.add_argument("--results", type=Path, default=RESULTS)
    told = reader.parse_args()
    how = {"sft": " ".join(SFT), "grpo": " ".join(GRPO), "common": " ".join(COMMON)}
    stored = json.loads(told.results.read_text()) if told.results.exists() else {}
    known: dict[str, Any] = stored["tasks"] if all(stored.get(name) == value for name, value in how.items()) else {}
    asked = [(task, int(seed)) for seed in told.seeds.split(",") for task in told.tasks.split(",")]
    with ThreadPoolExecutor(told.workers) as pool:
        waiting = {pool.submit(one, told.folder, task, seed): task for task, seed in asked}
        for done in as_completed(waiting):
            task, new = waiting[done], done.result()
            runs = [run for run in known.get(task, {}).get("runs", []) if run["seed"] != new["seed"]]
            runs = sorted([*runs, new], key=lambda run: int(run["seed"]))
            known[task] = {"runs": runs, **{f"gain, {kind}": gain(runs, kind) for kind in ("sampled", "greedy")}}
            content = {"script": "benchmarks/work_tasks.py", "model": "tiny", **how}
            told.results.write_text(json.dumps({**content, "tasks": dict(sorted(known.items()))}, indent=1) + "\n")
            print(task, json.dumps(new), known[task]["gain, sampled"], flush=True)


if __name__ == "__main__":
    main()
