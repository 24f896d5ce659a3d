"""Measured tables of the pages: their commands with three seeds, one raw file, and the tables as the pages have them.

    python scripts/page_tables.py --workers 15            run what is missing (an hour on 2 cores, minutes on 16)
    python scripts/page_tables.py --print                 the tables of the stored results
    python scripts/page_tables.py --smoke --folder /tmp/x --out /tmp/x.json    one step of everything

A run is a command of a page, with `--seed`. What it needs (a model of values, a reward model) is trained first, once
for each seed. Measured are 200 held-out tasks, one reply each at temperature 1; of reward models 400 pairs. Runs that
are in the raw file are not run again.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
OUT = ROOT / "benchmarks" / "results" / "page_tables.json"
SEEDS = (0, 1, 2)
NOISE = 0.3  # share of wrong labels


@dataclass(frozen=True)
class Row:
    """A row of a table: its label, the words of the run, and what has to be trained before: its words, with names."""

    label: str
    words: str
    needs: str = ""
    measure: str = "eval"  # or pairs


@dataclass(frozen=True)
class Table:
    page: str
    title: str
    rows: tuple[Row, ...]


def _decoded(method: str, flag: str, values: tuple[str, ...], words: str, needs: str) -> tuple[Row, ...]:
    more = tuple(Row(f"`{method} --{flag} {value}`", f"{words} --{flag} {value} --steps 1", needs) for value in values)
    best = "best_of_n --task add --temperature 1 --reward rm({needs})"
    judged = tuple(
        Row(f"`best_of_n --n {n}`, judged by the value model", f"{best} --n {n} --steps 1", needs) for n in (4, 8)
    )
    return more + judged


STALE = ("aipo", "aipo --lag 2", "grpo", "grpo --lag 1", "tba --lag 1", "tba --lag 1 --recent 0.5")
STALE += ("grpo --chunk 8", "grpo --chunk 8 --lag 1", "aipo --chunk 8")
TREES = ("rest_mcts", "meds3 --simulations 4", "rlm_blueprint", "step_apo --warmup 0 --lr 5e-5")
TREES += ("step_apo --warmup 2 --lr 5e-5", "best_of_n_distill --n 8")
VAS, Q = "vas_value --task add --steps 30", "q_sharp_value --task add --steps 30"
LABELS = "--task {pairs},flip=0.3 --prompts 8"
ENSEMBLE = f"reward_ensemble {LABELS} --steps 30"
TABLES = (
    Table("async.md", "stale", tuple(Row(f"`{one}`", f"{one} --task add --steps 16") for one in STALE)),
    *(
        Table(
            "tree-search.md",
            task,
            tuple(Row(f"`{one}`", f"{one} --task {task} --steps 8 --prompts 8") for one in TREES),
        )
        for task in ("add", "multiply")
    ),
    Table(
        "decoding.md",
        "values",
        _decoded("vas", "beta", ("1", "3", "10", "30"), "vas --task add --temperature 1 --value-model {needs}", VAS),
    ),
    Table(
        "decoding.md",
        "success",
        _decoded(
            "q_sharp",
            "eta",
            ("0.5", "0.1", "0.02"),
            "q_sharp --task add --temperature 1 --top-p 1 --value-model {needs}",
            Q,
        )[:3],
    ),
    Table(
        "reward-models.md",
        "labels",
        (
            Row("`reward_model`, 30 steps", f"reward_model {LABELS} --steps 30", measure="pairs"),
            Row("`reward_model`, 90 steps", f"reward_model {LABELS} --steps 90", measure="pairs"),
            Row(
                "`reward_model --label-smoothing 0.3`, 90 steps",
                f"reward_model {LABELS} --steps 90 --label-smoothing 0.3",
                measure="pairs",
            ),
            Row("`reward_ensemble`, mean of 5 heads, 30 steps", ENSEMBLE, measure="pairs"),
            Row(
                "`denoised_reward_model --ensemble` that one, 90 steps",
                f"denoised_reward_model {LABELS} --steps 90 --ensemble {{needs}}",
                ENSEMBLE,
                "pairs",
            ),
        ),
    ),
)


@dataclass(frozen=True)
class Places:
    """Where things are kept, and how much is run."""

    folder: Path
    smoke: bool

    @property
    def pairs(self) -> Path:
        return self.folder / "pairs.jsonl"

    def of(self, words: str, seed: int) -> Path:
        kept = "".join(c if c.isalnum() else "-" for c in words.replace(str(self.folder), ""))
        return self.folder / f"{kept}-{seed}"

    def model(self, words: str, seed: int, needs: str) -> Path:
        """The model of a run, trained if it is not there."""
        written = words.format(needs=needs, pairs=self.pairs)
        out = self.of(written, seed)
        if not (out / "evaluation.json").is_file():
            size = ["--steps", "1", "--prompts", "2", "--eval-tasks", "4"] if self.smoke else ["--eval-tasks", "200"]
            tail = ["--seed", str(seed), "--device", "cpu", "--quiet", "--eval-every", "0", "--out", str(out)]
            if out.is_dir():
                subprocess.run(["rm", "-r", str(out)], check=True)
            _burnish("train", *written.split(), *size, *tail)
        return out

    def measured(self, row: Row, seed: int) -> float:
        needs = str(self.model(row.needs, seed, "") / "model") if row.needs else ""
        out = self.model(row.words, seed, needs)
        if row.measure == "pairs":
            reward = f"ensemble({out / 'model'})" if row.words == ENSEMBLE else str(out / "model")
            tasks = "8" if self.smoke else "400"
            said = _burnish("eval-reward", reward, "--task", "sort", "--tasks", tasks, "--json", "--device", "cpu")
            return float(json.loads(said)["accuracy"]["mean"])
        after = json.loads((out / "evaluation.json").read_text())["after"]
        return float((after["sampled"]["accuracy"] if after.get("sampled") else after["value"])["mean"])


def _burnish(*words: str) -> str:
    known = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    ran = subprocess.run(
        [sys.executable, "-m", "burnish", *words], capture_output=True, text=True, env={**os.environ, **known}
    )
    if ran.returncode:
        raise RuntimeError(f"burnish {' '.join(words)}: {ran.stderr.strip()[-600:]}")
    return ran.stdout


def make_pairs(path: Path) -> None:
    """320 pairs of the task sort: the solution and the mistake of each problem."""
    from burnish.tasks.table import source

    rows = []
    for i in range(320):
        task = source("sort").task("train", i)
        prompt = task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"]
        rows.append({"prompt": prompt, "chosen": task.given["demo"], "rejected": task.given["mistake"]})
    random.Random(0).shuffle(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def key(table: Table, row: Row) -> str:
    return f"{table.page}: {table.title}: {row.label}"


def jobs(found: dict[str, dict[str, float]], seeds: tuple[int, ...]) -> Iterator[tuple[str, Row, int]]:
    """What is not yet in the raw file: rows that need nothing first come after the ones that others wait for."""
    for seed in seeds:
        for table in TABLES:
            for row in table.rows:
                if str(seed) not in found.get(key(table, row), {}):
                    yield key(table, row), row, seed


def run(asked: argparse.Namespace) -> None:
    places = Places(asked.folder, asked.smoke)
    asked.folder.mkdir(parents=True, exist_ok=True)
    make_pairs(places.pairs)
    found: dict[str, dict[str, float]] = json.loads(asked.out.read_text()) if asked.out.is_file() else {}
    seeds = SEEDS[:1] if asked.smoke else SEEDS
    todo = list(jobs(found, seeds))
    first = sorted({(row.needs, seed) for _, row, seed in todo if row.needs})
    began = time.monotonic()
    with ThreadPoolExecutor(asked.workers) as pool:
        for _ in pool.map(lambda one: places.model(one[0], one[1], ""), first):
            print(f"{time.monotonic() - began:.0f} s: a model that others need", flush=True)
        tried = pool.map(lambda one: (one, _tried(places, one[1], one[2])), todo)
        for i, ((name, _, seed), value) in enumerate(tried, 1):
            print(f"{time.monotonic() - began:.0f} s: {i} of {len(todo)}: {name}, seed {seed}: {value}", flush=True)
            if isinstance(value, float):
                found.setdefault(name, {})[str(seed)] = value
                asked.out.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def _tried(places: Places, row: Row, seed: int) -> float | str:
    try:
        return places.measured(row, seed)
    except RuntimeError as error:
        return str(error)


def lines(table: Table, found: dict[str, dict[str, float]]) -> list[str]:
    """The rows of a table, as the page has them: the mean over the seeds, and each seed."""
    rows = []
    for row in table.rows:
        values = [found[key(table, row)][str(seed)] for seed in SEEDS]
        each = ", ".join(f"{100 * value:.1f}" for value in values)
        rows.append(f"| {row.label} | {statistics.fmean(values):.1%} | {each} |")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, default=Path("runs/page-tables"))
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--smoke", action="store_true", help="one step of everything, one seed")
    parser.add_argument("--print", action="store_true", help="print the tables of the raw file")
    asked = parser.parse_args()
    if not asked.print:
        run(asked)
        return 0
    found = json.loads(asked.out.read_text())
    for table in TABLES:
        print("\n".join([f"\n{table.page}: {table.title}", *lines(table, found)]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
