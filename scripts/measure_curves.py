"""Every registered method on the embedded model: reward and held-out accuracy over the steps. Writes
benchmarks/curves.json.

    python scripts/measure_curves.py --workers 16 --seeds 3

Every option is at its default. A run is one process, `--workers` of them at a time; each is written down when it ends,
so that what is interrupted is gone on with by the same command: runs that are stored already are not repeated (--again
repeats).
Methods that need another model (a teacher, a reward model, a value model, a DPO policy) get one that is trained first.
scripts/write_method_docs.py draws the curves.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from burnish.config.options import method_fields
from burnish.methods.table import METHODS, Entry, load_all
from burnish.store.reader import open_store

OUT = Path(__file__).parent.parent / "benchmarks" / "curves.json"
TASK = "add"
LONGER = {"archer": {"task": "guess:1", "steps": 60, "critic_warmup": 10}}  # what needs more than the others
HELPERS = {"teacher": "sft", "dpo_policy": "dpo", "reward": "reward_model"}


SAMPLED = "heldout/sampled_accuracy"  # the greedy accuracy of tiny is high from the start


def _measured(outcome: dict[str, Any]) -> float:
    """The held-out score of an evaluation: of sampled replies, where there are some."""
    return float((outcome.get("sampled") or {"accuracy": outcome["value"]})["accuracy"]["mean"])


@dataclass(frozen=True)
class Job:
    """One run: a method, a seed, and the words of its command line."""

    method: str
    seed: int
    options: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.method}-{self.seed}"


def main() -> int:
    asked = _asked()
    load_all()
    stored = json.loads(asked.out.read_text())["methods"] if asked.out.is_file() else {}
    names = asked.only or sorted(METHODS, key=lambda name: (name not in LONGER, name))
    wanted = [(name, seed) for seed in range(asked.seeds) for name in names]
    todo = [(name, seed) for name, seed in wanted if asked.again or not _stored(stored, name, seed)]
    print(f"{len(wanted)} runs: {len(wanted) - len(todo)} are stored, {len(todo)} to make", flush=True)
    failed: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        work = Work(Path(folder), asked.device, time.time() + asked.limit, asked.workers)
        if todo:
            models = work.helpers(HELPERS if any(needs(METHODS[name]) for name, _ in todo) else {})
            jobs = [Job(name, seed, options(METHODS[name], models, asked.steps)) for name, seed in todo]
            try:
                for count, (job, row) in enumerate(work.all(jobs), start=1):
                    if isinstance(row, str):
                        failed.append(job.name)
                        print(f"{job.name} failed: {row}", flush=True)
                        continue
                    keep(stored, job, row)
                    write(asked.out, stored)
                    print(_line(job, row, count, len(jobs)), flush=True)
            except KeyboardInterrupt:
                print(f"stopped; {asked.out} holds what is done, and the same command goes on with the rest")
                return 130
    missing = [f"{name}-{seed}" for name, seed in wanted if not _stored(stored, name, seed)]
    print("not measured:", ", ".join(missing) or "none")
    return 1 if failed else 0


def _asked() -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--workers", type=int, default=1, help="runs at a time (1)")
    flags.add_argument("--seeds", type=int, default=1, help="runs of each method, seeds 0, 1, ... (1)")
    flags.add_argument("--steps", type=int, default=16, help="steps of each run (16)")
    flags.add_argument("--device", default="auto", help="cpu, cuda or auto (auto)")
    flags.add_argument("--out", type=Path, default=OUT, help="where the curves are written (benchmarks/curves.json)")
    flags.add_argument("--only", nargs="*", help="these methods alone")
    flags.add_argument("--again", action="store_true", help="repeat runs that are stored already")
    flags.add_argument("--limit", type=float, default=1e9, help="seconds after which no run is started or waited for")
    return flags.parse_args()


def needs(entry: Entry) -> list[str]:
    """The arguments that a method has no default for: directories of models."""
    return [name for name, parameter in method_fields(entry).items() if parameter.default is parameter.empty]


def options(entry: Entry, models: dict[str, str], steps: int) -> dict[str, Any]:
    """What a run is told: the task, the steps, and a model for every argument that wants one, by the
    argument's name.
    """
    found: dict[str, Any] = {"task": entry.trial.get("task", TASK), "steps": steps}
    if "lora" in entry.trial:
        found["lora"] = 8
    for name in needs(entry):
        kind = "dpo_policy" if "dpo" in name else "reward" if "reward" in name or "value" in name else "teacher"
        found[name] = models[kind]
    return {**found, **LONGER.get(entry.name, {})}


def keep(stored: dict[str, Any], job: Job, row: dict[str, Any]) -> None:
    """The run among the method's others; runs of another task or length make way."""
    about = {"task": job.options["task"], "steps": job.options["steps"], "measure": row.pop("measure")}
    there = stored.get(job.method, {})
    runs = there.get("runs", []) if {key: there.get(key) for key in about} == about else []
    others = [run for run in runs if run["seed"] != job.seed]
    stored[job.method] = {**about, "runs": sorted([*others, row], key=lambda run: run["seed"])}


def write(out: Path, stored: dict[str, Any]) -> None:
    """One line a run, written aside and put in place whole."""
    out.parent.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, found in sorted(stored.items()):
        about = json.dumps({key: value for key, value in found.items() if key != "runs"})[1:-1]
        runs = ",\n   ".join(json.dumps(run) for run in found["runs"])
        lines.append(f'  "{name}": {{{about}, "runs": [\n   {runs}]}}')
    aside = out.with_suffix(".part")
    aside.write_text('{"methods": {\n' + ",\n".join(lines) + "\n}}\n")
    aside.replace(out)


def _stored(stored: dict[str, Any], name: str, seed: int) -> bool:
    """Is this run written down, with its rewards? (One without was measured before rewards were kept.)"""
    return any(run["seed"] == seed and run["reward"] for run in stored.get(name, {}).get("runs", []))


def _line(job: Job, row: dict[str, Any], count: int, of: int) -> str:
    first, last = row["heldout"][0][1], row["heldout"][-1][1]
    return f"{count:4}/{of}  {job.name:28} {job.options['task']:8} {first:.3f} -> {last:.3f}  {row['seconds']:.0f} s"


class Work:
    """Runs of the command line, several at a time."""

    def __init__(self, folder: Path, device: str, deadline: float, workers: int) -> None:
        self.folder, self.device, self.deadline, self.workers = folder, device, deadline, workers

    def helpers(self, wanted: dict[str, str]) -> dict[str, str]:
        """The models that some methods start from, trained side by side."""
        print("training " + ", ".join(wanted) + " first" if wanted else "no method needs another model", flush=True)
        running = {
            kind: self.started(
                f"helper-{kind}", [method, "--task", TASK, "--steps", "15", "--eval-tasks", "0", "--seed", "0"]
            )
            for kind, method in wanted.items()
        }
        for kind, process in running.items():
            if process.wait():
                raise SystemExit(f"the model {kind!r} could not be trained: {self.end_of_log(f'helper-{kind}')}")
        return {kind: str(self.folder / f"helper-{kind}" / "model") for kind in wanted}

    def started(self, name: str, words: list[str]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "burnish.cli", "train", *words, "--out", str(self.folder / name), "--quiet"]
        settings = ["--device", self.device, "--save-every", "0"]
        with (self.folder / f"{name}.log").open("w") as log:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            return subprocess.Popen([*command, *settings], stdout=log, stderr=log, env=environment)

    def all(self, jobs: list[Job]) -> Iterator[tuple[Job, dict[str, Any] | str]]:
        """(job, its row or what went wrong) as runs end, `workers` at a time, until the deadline."""
        waiting = list(jobs)
        running: dict[str, tuple[Job, subprocess.Popen[bytes], float]] = {}
        try:
            while (waiting or running) and time.time() < self.deadline:
                while waiting and len(running) < self.workers:
                    job = waiting.pop(0)
                    words = [job.method, "--seed", str(job.seed), "--eval-every", "2", "--eval-tasks", "200"]
                    for key, value in job.options.items():
                        words += [f"--{key.replace('_', '-')}", str(value)]
                    running[job.name] = (job, self.started(job.name, words), time.time())
                for job, process, began in list(running.values()):
                    if process.poll() is not None:
                        del running[job.name]
                        yield job, self.row(job, time.time() - began)
                time.sleep(0.2)
        finally:
            for _, process, _ in running.values():
                process.kill()

    def row(self, job: Job, seconds: float) -> dict[str, Any] | str:
        """What one run did, step by step; or, where it failed, the end of what it said."""
        folder = self.folder / job.name
        try:
            outcome = json.loads((folder / "evaluation.json").read_text())
            with open_store(folder) as store:
                steps = store.metrics()
            before, after = (_measured(outcome[when]) for when in ("before", "after"))
        except (OSError, KeyError, ValueError, TypeError):
            return self.end_of_log(job.name)
        held = [(step["step"], [key for key in step if key.startswith("heldout/")], step) for step in steps]
        during = [[at, step[SAMPLED if SAMPLED in keys else keys[0]]] for at, keys, step in held if keys]
        return {
            "seed": job.seed,
            "seconds": round(seconds, 1),
            "torch": torch.__version__,
            "measure": outcome["before"]["name"],
            "heldout": [[0, before], *during, [len(steps), after]],
            "reward": [round(step["reward"], 4) if step.get("reward") is not None else None for step in steps],
        }

    def end_of_log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()[-400:]


if __name__ == "__main__":
    sys.exit(main())
