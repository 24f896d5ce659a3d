"""The standing leaderboard: every registered method on three tasks, from `tiny`, under one budget. Writes
docs/leaderboard.md and its plot.

    python scripts/leaderboard.py --workers 16 --limit-seconds 560      run what is missing, for about nine minutes
    python scripts/leaderboard.py                                       the same again goes on where it stopped
    python scripts/leaderboard.py --page                                only write the page anew
    python scripts/leaderboard.py --merge other.json                    take over results from elsewhere first

Results are kept in benchmarks/leaderboard.json, one line a run; a run that is there is never made again. Methods that
need another model (a teacher, a reward model, a DPO policy) get one that is trained first, outside the budget.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch
import transformers
from rich.console import Console

from burnish.compare.budget import Budget, parse
from burnish.compare.display import Display
from burnish.compare.helpers import helper_jobs, helper_model, needs, plain
from burnish.compare.job import Job, RunResult, failed
from burnish.compare.leaderboard_page import page, plot, ranks
from burnish.compare.pool import Pool, workers_and_gpus
from burnish.compare.results import ResultsFile
from burnish.methods.table import METHODS, Entry, load_all
from burnish.tasks.table import source

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "leaderboard.json"
CURVES = ROOT / "benchmarks" / "curves.json"  # how long methods take, measured before
PAGE = ROOT / "docs" / "leaderboard.md"
PICTURE = PAGE.with_suffix(".svg")
TASKS = ("add", "sort", "countdown")
BUDGET, SEEDS = "tokens=16k", 3
HELD_OUT, REPLIES, POINTS = 200, 1, 2  # one reply each at the end: tasks and seeds are what the interval hangs on


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--workers", type=int, help="runs at a time; one for each core by default")
    flags.add_argument("--device", default="cpu", help="cpu, or cuda: the workers then share the GPUs")
    flags.add_argument("--limit-seconds", type=float, help="begin no more and stop politely after so many seconds")
    flags.add_argument("--seeds", type=int, default=SEEDS)
    flags.add_argument("--budget", default=BUDGET, help="tokens=16k, samples=..., seconds=..., flops=..., steps=...")
    flags.add_argument("--only", nargs="*", help="these methods alone")
    flags.add_argument("--results", type=Path, default=RESULTS)
    flags.add_argument("--merge", type=Path, nargs="*", default=[], help="files of results to take over first")
    flags.add_argument(
        "--work", type=Path, default=Path("runs/leaderboard"), help="where runs live until they are done"
    )
    flags.add_argument("--page", action="store_true", help="only write the page")
    asked = flags.parse_args()
    load_all()
    about = {"torch": torch.__version__, "transformers": transformers.__version__, "tasks": list(TASKS)}
    store = ResultsFile(asked.results, about)
    for file in asked.merge:
        store.merge(file)
    budget = parse(asked.budget)
    store.of(budget)
    if not asked.page:
        run(store, budget, asked)
    if store.rows:
        store.save()
    rows = store.of(budget)
    if asked.only is None:
        PAGE.write_text(page(rows, budget, TASKS, PICTURE.name))
        if rows:
            PICTURE.write_text(plot(ranks(rows, TASKS), budget))
    left = sum(not store.done(job.key) for job in jobs(asked.only or list(METHODS), budget, asked, store))
    more = f", {left} are missing or failed: the same command goes on" if left else ", all that were wanted"
    Console().print(f"{sum(row.done for row in rows)} runs in {asked.results}{more}", highlight=False)


def run(store: ResultsFile, budget: Budget, asked: argparse.Namespace) -> None:
    """Every run that is not in the store, helpers first, until the time is up."""
    wanted = [job for job in jobs(asked.only or list(METHODS), budget, asked, store) if not store.done(job.key)]
    workers, gpus = workers_and_gpus(asked.workers, asked.device)
    shared = _shared(asked)
    kinds = [(kind, job.task) for job in wanted for kind in needs(METHODS[job.method]).values()]
    first = helper_jobs(asked.work, kinds, shared)

    def found(row: RunResult) -> None:
        display.on_result(row)
        if not row.label.startswith("helper:"):
            here = f"{asked.work}/"  # where a helper was on this machine is nobody else's business
            store.add(
                replace(
                    row,
                    flags={
                        k: str(v).removeprefix(here) if k in needs(METHODS[row.method]) else v
                        for k, v in row.flags.items()
                    },
                )
            )

    began = time.monotonic()
    with Display(Console(), f"leaderboard, {budget} a run", len(first) + len(wanted)) as display:
        for some in (first, wanted):  # the helpers must be there before those who need them
            left = asked.limit_seconds and asked.limit_seconds - (time.monotonic() - began)
            if some and (left is None or left > 0):
                display.follow(Pool(workers, asked.work / "logs", found, gpus)).run(some, limit=left)


def jobs(names: list[str], budget: Budget, asked: argparse.Namespace, store: ResultsFile) -> list[Job]:
    """A run for every method, task and seed; a task that a method cannot work on becomes a row that says why."""
    found: list[Job] = []
    for name in names:
        entry = METHODS[name]
        reasons = {task: refusal(entry, task) for task in TASKS}
        own = str(entry.trial.get("task", TASKS[0]))
        for task in TASKS if not all(reasons.values()) else (own,):
            for seed in range(asked.seeds):
                job = _job(entry, task, seed, budget, asked)
                if reasons.get(task):
                    store.add(failed(job, reasons[task]))
                else:
                    found.append(job)
    curves = json.loads(CURVES.read_text())["methods"]
    seconds = {name: row["runs"][0]["seconds"] / row["steps"] for name, row in curves.items()}
    return sorted(
        found, key=lambda job: (job.seed, -seconds.get(job.method, 0))
    )  # every method once, the slow ones first


def _shared(asked: argparse.Namespace) -> dict[str, object]:
    """What every run is told: many share the machine, so none may take memory by what is free."""
    return {"device": asked.device, "token_budget": 8192, "kv_gib": 1.0}


def refusal(entry: Entry, task: str) -> str:
    """Why a method cannot work on a task, or nothing."""
    try:
        entry.build(source(task), **dict.fromkeys(needs(entry), "tiny"), **columns_of(entry))
    except ValueError as error:
        return str(error)
    return ""


def columns_of(entry: Entry) -> dict[str, object]:
    """The columns that its trial names: generated tasks have no users who compare, nor labels."""
    return {key: entry.trial[key] for key in ("user", "column") if key in entry.trial}


def _job(entry: Entry, task: str, seed: int, budget: Budget, asked: argparse.Namespace) -> Job:
    helpers = {name: str(helper_model(asked.work, kind, task)) for name, kind in needs(entry).items()}
    out = asked.work / f"{entry.name}-{plain(task)}-{seed}"
    shared = {"save_every": 0, **_shared(asked)}
    return Job(
        entry.name,
        entry.name,
        {**shared, **helpers, **columns_of(entry)},
        task,
        seed,
        budget,
        str(out),
        tasks=HELD_OUT,
        replies=REPLIES,
        points=POINTS,
    )


if __name__ == "__main__":
    main()
