"""Every preference method of the library and the zoo on one task, each at a learning rate and a strength of its own.

    python scripts/preference_methods.py --workers 16 --limit 480
    python scripts/preference_methods.py --smoke --out smoke.json

`tiny` learns to sort. Methods of given pairs learn from the same pairs, the best and the worst of 8 replies of `tiny`
to a prompt; methods that sample get the same prompts and the task's verifier. A method is tuned in two stages on
development seeds, by right replies to development problems: first the learning rate, then its strength, the
first of STRENGTHS that it has, at the default and at a fifth and five times of it. Then it runs with `--seeds` other
seeds, and is measured on other problems. Each run is written down when it ends, and runs that are stored are not
repeated. scripts/preference_results.py has the statistics; scripts/write_method_docs.py draws the curves.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from preference_rigs import Bench, Rig, Size, dataset, make_pairs

from burnish.config.options import method_fields
from burnish.core.loop import loop
from burnish.core.method import Method
from burnish.core.step import Settings
from burnish.methods.table import METHODS, find, load_all
from burnish.models.build import Models, build
from burnish.models.known_models import resolve
from burnish.models.save import save_directory
from burnish.report.show import built
from burnish.tasks.source import Source
from burnish.tasks.table import source as built_in

OUT = Path(__file__).parent.parent / "benchmarks" / "results" / "preference_methods.json"
TASK = "sort"
OF_PICTURES = ("d3po", "diffusion_dpo", "mm_dpo")  # sort is a task of words
STRENGTHS = ("beta", "tau", "eta", "lam", "gamma", "sft")
CURVE = 5  # measurements in a run
OTHERWISE: dict[str, dict[str, Any]] = {
    "eva": {"every": 10, "words": "brief"},  # as its printed command
    "lcpo": {"beta": 0.1},  # its default is that of the wrapped loss
    "rso": {"n": 16},  # 64 replies to a prompt take as long as all other methods together
}
OWN_FACTORS = {"direct_preference_ppo": (0.2, 1.0)}  # its strength is a share
TUNED, SEEDED = "tuned", "seeded"


@dataclass(frozen=True)
class Grid:
    """What is tried while methods are tuned.

    rates        learning rates
    factors      of the default strength
    development  seeds on which methods are tuned
    problems     held-out problems of the tuning, and as many others of the measurement
    """

    rates: tuple[float, ...] = (1e-5, 3e-5, 1e-4, 3e-4)
    factors: tuple[float, ...] = (0.2, 1.0, 5.0)
    development: tuple[int, ...] = (1000, 1001)
    problems: int = 100


SMOKE = Grid((1e-4,), (1.0,), (1000,), 10)


@dataclass(frozen=True)
class Job:
    """One run. stage: tuned (on development problems) or seeded (measured for the tables)."""

    method: str
    stage: str
    rate: float
    factor: float
    seed: int

    @property
    def name(self) -> str:
        return f"{self.method} {self.stage} lr {self.rate:g} x{self.factor:g} seed {self.seed}"


def compared() -> list[str]:
    """The preference methods, but for those whose pairs are of pictures."""
    return sorted(name for name, entry in METHODS.items() if entry.family == "preference" and name not in OF_PICTURES)


def main() -> int:
    asked = _asked()
    load_all()
    if asked.smoke:
        asked.steps, asked.seeds, asked.pairs = 2, 1, 40
    names = asked.only or compared()
    about = {"model": "tiny", "task": TASK, "steps": asked.steps, "prompts": asked.prompts, "pairs": asked.pairs}
    stored = json.loads(asked.out.read_text()) if asked.out.is_file() else {}
    if any(stored.get(key) != value for key, value in about.items()):
        stored = {**about, "commit": asked.commit, "torch": torch.__version__, "rows": []}
    with tempfile.TemporaryDirectory() as folder:
        pairs, helper = Path(folder) / "pairs.jsonl", Path(folder) / "helper"
        make_pairs(pairs, "--task", TASK, "--n", "8", "--count", str(asked.pairs))
        stored["train"] = size_of(pairs)
        work = Work(asked, stored, pairs, helper, names)
        try:
            return work.done()
        except KeyboardInterrupt:
            print(f"stopped; {asked.out} holds what is done, and the same command continues", flush=True)
            return 130


def size_of(pairs: Path) -> int:
    size = data_of(pairs).size("train")
    assert size is not None
    return size


def data_of(pairs: Path) -> Source:
    return dataset([json.loads(line) for line in pairs.read_text().splitlines()], "pairs", 0.3)


def _asked() -> argparse.Namespace:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--workers", type=int, default=1, help="runs at a time (1)")
    flags.add_argument("--seeds", type=int, default=5, help="seeds of the tuned methods (5)")
    flags.add_argument("--steps", type=int, default=32, help="steps of each run (32)")
    flags.add_argument("--prompts", type=int, default=8, help="pairs or prompts of a step (8)")
    flags.add_argument("--pairs", type=int, default=320, help="prompts that pairs are made of (320)")
    flags.add_argument("--smoke", action="store_true", help="one rate, one seed, ten problems: does each method run")
    flags.add_argument("--only", nargs="*", help="these methods alone")
    flags.add_argument("--out", type=Path, default=OUT)
    flags.add_argument("--commit", default="", help="written into the file")
    flags.add_argument("--limit", type=float, default=1e9, help="seconds after which no run is started or waited for")
    return flags.parse_args()


# ---------------------------------------------------------------------------------------------------------- planning


def given_alone(method: Method) -> bool:
    """Whether a method learns from given pairs and samples nothing."""
    return all(
        phase.rollout.name.startswith("given(") and "greedy" not in phase.rollout.name for phase in method.phases
    )


def strength(name: str) -> str | None:
    """The option that holds a method to its reference, or scales its margin."""
    known = method_fields(METHODS[name])
    numbers = {key: OTHERWISE.get(name, {}).get(key, known[key].default) for key in STRENGTHS if key in known}
    return next((key for key, value in numbers.items() if isinstance(value, float)), None)


def options(job: Job, helper: Path) -> dict[str, Any]:
    """What a run sets besides the method's defaults."""
    known = method_fields(METHODS[job.method])
    found = {key: str(helper) for key, field in known.items() if field.default is field.empty}
    found |= {"other": str(helper)} if job.method == "modpo" else {}
    found |= OTHERWISE.get(job.method, {})
    if (key := strength(job.method)) and job.factor != 1:
        found[key] = found.get(key, known[key].default) * job.factor
    return found


def chosen(rows: list[dict[str, Any]], **same: Any) -> dict[str, Any] | None:
    """The tuned row with the most right replies, the mean over development seeds; the first of equal ones."""
    means: dict[tuple[float, float], list[float]] = {}
    for row in rows:
        if all(row[key] == value for key, value in same.items()):
            means.setdefault((row["rate"], row["factor"]), []).append(row["mean"])
    if not means:
        return None
    rate, factor = max(means, key=lambda key: statistics.fmean(means[key]))
    return {"rate": rate, "factor": factor, "mean": statistics.fmean(means[rate, factor])}


def planned(name: str, rows: list[dict[str, Any]], seeds: int, grid: Grid) -> list[Job]:
    """The next runs of a method: those of its first stage that is not complete. Empty when all is done."""
    mine = [row for row in rows if row["method"] == name]
    done = {Job(**{key: row[key] for key in Job.__dataclass_fields__}) for row in mine}
    tuning = [Job(name, TUNED, rate, 1.0, seed) for seed in grid.development for rate in grid.rates]
    if missing := [job for job in tuning if job not in done]:
        return missing
    tuned = [row for row in mine if row["stage"] == TUNED]
    best = chosen(tuned, factor=1.0)
    assert best is not None
    factors = OWN_FACTORS.get(name, grid.factors) if strength(name) else (1.0,)
    tuning = [Job(name, TUNED, best["rate"], factor, seed) for seed in grid.development for factor in factors]
    if missing := [job for job in tuning if job not in done]:
        return missing
    best = chosen(tuned, rate=best["rate"])
    assert best is not None
    wanted = [Job(name, SEEDED, best["rate"], best["factor"], seed) for seed in range(seeds)]
    return [job for job in wanted if job not in done]


# ----------------------------------------------------------------------------------------------------------- running


class Work:
    """Runs in processes of their own, several at a time; each is written down when it ends."""

    def __init__(
        self, asked: argparse.Namespace, stored: dict[str, Any], pairs: Path, helper: Path, names: list[str]
    ) -> None:
        self.asked, self.stored, self.pairs, self.helper, self.names = asked, stored, pairs, helper, names
        self.grid = SMOKE if asked.smoke else Grid()
        self.deadline = time.time() + asked.limit
        self.failed: dict[str, str] = {}

    def done(self) -> int:
        """Run what is missing; 0 if all is there."""
        size = Size(
            self.asked.steps, self.asked.prompts, 0.0, self.asked.seeds, tasks=2 * self.grid.problems, replies=2
        )
        spawn = multiprocessing.get_context("spawn")
        given = (str(self.pairs), str(self.helper), size, self.grid.problems)
        with ProcessPoolExecutor(self.asked.workers, spawn, _begin, given) as pool:
            if any(str(self.helper) in options(Job(n, TUNED, 0.0, 1.0, 0), self.helper).values() for n in self.names):
                pool.submit(_make_helper).result()
            try:
                self._through(pool)
            finally:
                for process in pool._processes.values():
                    process.kill()  # at the deadline or an interruption: what is under way is not waited for
        missing = [name for name in self.names if planned(name, self.stored["rows"], self.asked.seeds, self.grid)]
        print(f"{len(self.names) - len(missing)} of {len(self.names)} methods complete", flush=True)
        for name, said in self.failed.items():
            print(f"{name} failed: {said}", flush=True)
        return 1 if missing else 0

    def _through(self, pool: ProcessPoolExecutor) -> None:
        running: dict[Future[dict[str, Any]], Job] = {}
        while time.time() < self.deadline:
            for job in self._next(set(running.values()))[: self.asked.workers * 2 - len(running)]:
                running[pool.submit(run, job)] = job
            if not running:
                return
            ended, _ = wait(running, timeout=max(0.0, self.deadline - time.time()), return_when=FIRST_COMPLETED)
            for future in ended:
                job = running.pop(future)
                if error := future.exception():
                    self.failed[job.method] = f"{type(error).__name__}: {error}"
                    print(f"{job.name}: {self.failed[job.method]}", flush=True)
                    continue
                self.stored["rows"].append(future.result())
                write(self.asked.out, self.stored)
                row = self.stored["rows"][-1]
                print(f"{job.name}: {row['mean']:.3f} in {row['seconds']} s", flush=True)

    def _next(self, running: set[Job]) -> list[Job]:
        """Runs that may start now: earlier stages and earlier seeds first, so that at the deadline all methods have
        about as many.
        """
        open_jobs = [
            job
            for name in self.names
            if name not in self.failed
            for job in planned(name, self.stored["rows"], self.asked.seeds, self.grid)
            if job not in running
        ]
        return sorted(open_jobs, key=lambda job: (job.stage == SEEDED, job.seed))


def write(out: Path, stored: dict[str, Any]) -> None:
    """One line a run, written aside and put in place whole."""
    out.parent.mkdir(parents=True, exist_ok=True)
    about = json.dumps({key: value for key, value in stored.items() if key != "rows"}, indent=1)[:-2]
    order = sorted(stored["rows"], key=lambda row: [str(row[key]) for key in Job.__dataclass_fields__])
    rows = ",\n  ".join(json.dumps(row) for row in order)
    aside = out.with_suffix(".part")
    aside.write_text(f'{about},\n "rows": [\n  {rows}\n ]\n}}\n')
    aside.replace(out)


# ------------------------------------------------------------------------------------------- in a process of its own

_BENCH: dict[str, Any] = {}


def _begin(pairs: str, helper: str, size: Size, problems: int) -> None:
    """What a worker process keeps: the data, the problems, and what the start model says."""
    torch.set_num_threads(1)
    os.nice(5)
    load_all()
    data = data_of(Path(pairs))
    bench = Bench(Rig(TASK, (), {}, clean=data), size)
    development, measured = bench.tasks[problems:], bench.tasks[:problems]
    _BENCH.update(bench=bench, data=data, size=size, helper=Path(helper), tuned=development, seeded=measured)


def _make_helper() -> None:
    """A policy trained by DPO: what tgdpo, modpo and arena_learning need besides their own."""
    job, helper = Job("dpo", TUNED, 1e-4, 1.0, 999), _BENCH["helper"]
    models = _models(find("dpo").build(_BENCH["data"]), job)
    for _ in loop(*models, steps=16, seed=job.seed):
        pass
    helper.mkdir()
    save_directory(models[1]["policy"].module, models[1]["policy"].chat, helper)


def _models(method: Method, job: Job) -> tuple[Method, Models, Settings]:
    settings = replace(_BENCH["size"].settings, lr=job.rate)
    return method, build(method.models, resolve("tiny"), settings, device="cpu"), settings


def run(job: Job) -> dict[str, Any]:
    """One run in memory: the curve of right replies, and what each problem and pair came to in the end."""
    start, bench, size = time.perf_counter(), _BENCH["bench"], _BENCH["size"]
    entry = find(job.method)
    source = _BENCH["data"] if given_alone(built(entry)) else built_in(TASK)
    method, models, settings = _models(entry.build(source, **options(job, _BENCH["helper"])), job)
    bench.tasks = _BENCH[job.stage]
    steps, curve, stopped = size.steps, [], ""
    every = max(1, steps // CURVE)
    try:
        for count, report in enumerate(loop(method, models, settings, steps=steps, seed=job.seed), start=1):
            if report.metrics.get("refused"):
                stopped = f"step {count}: the update was rejected"
                break
            if job.stage == SEEDED and count % every == 0 and count < steps:
                curve.append([count, round(statistics.fmean(bench.replies(models)["right"]), 4)])
    except ValueError as error:  # nothing left to learn from: all replies to a prompt score the same
        stopped = str(error)[:120]
    row = {**asdict(job), "strength": options(job, _BENCH["helper"]).get(strength(job.method) or "")}
    if job.stage == TUNED:
        row["mean"] = round(statistics.fmean(bench.replies(models)["right"]), 4)
    else:
        row |= {key: [round(x, 3) for x in value] for key, value in bench.numbers(models).items()}
        row["mean"] = round(statistics.fmean(row["right"]), 4)
        row["curve"] = [[0, begun()], *curve, [steps, row["mean"]]]
    row |= {"stopped": stopped} if stopped else {}
    return {**row, "data": "pairs" if source is _BENCH["data"] else "task", "seconds": round(_since(start), 1)}


def begun() -> float:
    """Right replies of the start model to the problems of the measurement."""
    if "begun" not in _BENCH:
        bench = _BENCH["bench"]
        bench.tasks = _BENCH[SEEDED]
        _BENCH["begun"] = round(statistics.fmean(bench.replies(bench.start_models)["right"]), 4)
    return float(_BENCH["begun"])


def _since(start: float) -> float:
    return time.perf_counter() - start


if __name__ == "__main__":
    sys.exit(main())
