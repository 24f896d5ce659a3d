"""Run the printed command of every preference, reward and data method at a small size, and record what it did.

    python scripts/printed_commands.py --workers 16

Writes benchmarks/results/printed_commands.json: the exit code, the metrics of each step, whether the weights moved, and
a hash of them: a preference method whose weights are those of `dpo` did nothing of its own. Files and models that a
command names are made first. ACTED says which metric shows that the mechanism of a method acted.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import torch

from burnish.cli import main as burnish
from burnish.methods.table import METHODS, load_all
from burnish.store.reader import open_store

OUT = Path(__file__).parent.parent / "benchmarks" / "results" / "printed_commands.json"
SMALL = ["--steps", "6", "--prompts", "4", "--max-new-tokens", "24", "--eval-tasks", "0", "--save-every", "0"]
SMALL += ["--record", "0", "--dtype", "float32", "--device", "cpu", "--lr", "1e-4", "--quiet"]
ALSO = ("pf_ppo", "rlep", "serl", "teams_rl", "rlsc")  # data methods of other families
MORE = {  # what a printed command leaves to the reader, and what makes a small run long enough
    "maxmin_rm": ["--user", "user"],
    "vpl": ["--user", "user"],
    "refusal_classifier": ["--column", "refusal"],
    "rso": ["--n", "8"],
    "divpo": ["--n", "4"],
    "trpa": ["--n", "4"],
}


SAME_AS_BASE = {"dpo", "lcpo"}  # all labels are right at first: the estimates of lcpo start at one value for all
ACTED = {  # the metric that shows that a mechanism acted: some step has a value that is not 0
    "arena_learning": "battles/tied",
    "armorm": "verbosity_share",
    "bco": "density",
    "convex_reward_model": "augmented",
    "denoised_reward_model": "flipped",
    "goal_conditioned_rm": "goal_near",
    "lcpo": "label_reliability",
    "mixed_po": "pg/loss",
    "pf_ppo": "dropped/filtered",
    "process_reward_model": "step/loss",
    "rlep": "pg/loss",
    "teams_rl": "executor_calls",
    "vpl": "pairs_of_user",
}

AT_LEAST = {"maxmin_rm": ("end/accuracy", 0.9)}  # at the end: users disagree on every pair, and one model has half
UNTAUGHT = {"spct", "spct_rft", "think_rm"}  # `tiny` writes no verdict that can be read, so no reply earns anything


def problem(row: dict[str, Any], base: str) -> str:
    """What is wrong with a run; empty where its mechanism acted. base: the hash of the weights after `dpo`."""
    name = str(row["method"])
    if row["code"]:
        return f"exit code {row['code']}: {row.get('said', '')[-160:]}"
    learned = [value for key, own in row["metrics"].items() if key.endswith("grad_norm") for value in own if value]
    if not learned and name not in UNTAUGHT:
        return "no step had a gradient"
    if name not in SAME_AS_BASE and row["weights"] == base:
        return "its weights are those of dpo"
    if name in AT_LEAST:
        metric, least = AT_LEAST[name]
        return "" if row["metrics"].get(metric, [0.0])[-1] >= least else f"{metric} is below {least:g} at the end"
    if name in ACTED:
        found = [value for key, own in row["metrics"].items() if key.startswith(ACTED[name]) for value in own if value]
        return "" if found else f"the metric {ACTED[name]} is absent or 0 in every step"
    return ""


def names() -> list[str]:
    """The methods whose commands are run."""
    load_all()
    families = [name for name, entry in METHODS.items() if entry.family in ("preference", "reward")]
    return sorted({*families, *(name for name in ALSO if name in METHODS)})


def command(name: str, folder: Path) -> list[str]:
    """The words of a printed command, with files and models of the folder in the place of the reader's."""
    words = METHODS[name].example.split()[1:]
    found = []
    for word in words:
        if word.endswith(".jsonl"):
            word = str(folder / word)
        found.append(word.replace("runs/DIR/model", str(folder / "dpo" / "model")))
    return [*found, *SMALL, *MORE.get(name, [])]


def prepare(folder: Path) -> None:
    """The files and the model that printed commands name."""
    quiet = ["--device", "cpu", "--json"]
    pairs = folder / "pairs.jsonl"
    _run(["pairs", "--model", "tiny", "--task", "sort", "--n", "8", "--tasks", "48", "--out", str(pairs), *quiet])
    rows = [json.loads(line) for line in pairs.read_text().splitlines()]
    for i, row in enumerate(rows):
        row["user"] = f"user {i % 2}"
        if i % 2:  # users of one kind like what the others dislike
            row["chosen"], row["rejected"] = row["rejected"], row["chosen"]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    steps = [
        "steps",
        "--model",
        "tiny",
        "--task",
        "sort",
        "--tasks",
        "24",
        "--out",
        str(folder / "steps.jsonl"),
        *quiet,
    ]
    _run(steps)
    kinds = ("unknown", "privacy")
    told = [{"prompt": f"Say {i}.", "completion": f"I cannot {i}.", "refusal": [kinds[i % 2]]} for i in range(24)]
    (folder / "refusals.jsonl").write_text("".join(json.dumps(row) + "\n" for row in told))
    _run(["train", "dpo", *SMALL, "--out", str(folder / "dpo")])


def _run(words: list[str]) -> None:
    if burnish(words):
        raise SystemExit(f"burnish {' '.join(words)} failed")


def weights(folder: Path) -> str:
    """A hash of the weights of a run's product; empty without one."""
    files = sorted((folder / "model").glob("*.safetensors"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest() if files else ""


def run(name: str, folder: str) -> dict[str, Any]:
    """One command in this process, with what it said kept apart."""
    torch.set_num_threads(1)
    load_all()
    start, out = time.perf_counter(), Path(folder) / f"run-{name}"
    log = Path(folder) / f"{name}.log"
    saved = os.dup(1), os.dup(2)
    with log.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            code = burnish([*command(name, Path(folder)), "--out", str(out)])
        except SystemExit as error:
            code = int(error.code or 0)
        finally:
            sys.stdout.flush()
            for kept, number in zip(saved, (1, 2), strict=True):
                os.dup2(kept, number)
    row: dict[str, Any] = {"method": name, "code": code, "seconds": round(time.perf_counter() - start, 1)}
    row["command"] = METHODS[name].example
    if code:
        return row | {"said": log.read_text()[-300:]}
    with open_store(out) as store:
        steps = store.metrics()
    keys = sorted({key for step in steps for key in step})
    row["metrics"] = {
        key: [round(float(step[key]), 6) if isinstance(step.get(key), int | float) else None for step in steps]
        for key in keys
        if not key.startswith(("time/", "seconds", "memory"))
    }
    return row | {"weights": weights(out)}


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--workers", type=int, default=1)
    flags.add_argument("--only", nargs="*")
    flags.add_argument("--out", type=Path, default=OUT)
    asked = flags.parse_args()
    found: dict[str, Any] = {"torch": torch.__version__, "steps": 6, "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        with ProcessPoolExecutor(asked.workers, multiprocessing.get_context("spawn")) as pool:
            jobs = {pool.submit(run, name, folder): name for name in asked.only or names()}
            for job in as_completed(jobs):
                error = job.exception()
                row = {"method": jobs[job], "code": -1, "said": repr(error)[:300]} if error else job.result()
                found["rows"] = sorted([*found["rows"], row], key=lambda one: str(one["method"]))
                asked.out.write_text(json.dumps(found, indent=None).replace('{"method"', '\n  {"method"') + "\n")
                print(row["method"], row["code"], row.get("said", "")[-200:], flush=True)
    base = next((row.get("weights", "") for row in found["rows"] if row["method"] == "dpo"), "-")
    wrong = {row["method"]: said for row in found["rows"] if (said := problem(row, base))}
    for name, said in wrong.items():
        print(f"{name}: {said}", flush=True)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
