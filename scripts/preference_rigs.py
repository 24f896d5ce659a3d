"""What the experiments on preference data share: runs of methods under several conditions, and their statistics.

An experiment trains `tiny` by each method on the pairs of each condition, with several seeds, which change the order
of the pairs. Every run is then measured on the same held-out tasks: the share of right replies, their length, and how
often its implicit reward prefers the preferred reply of a clean pair. Intervals and tests are those of
`burnish compare`. Each run is stored when it ends, so that the same command continues after an interruption.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from burnish.cli import main as burnish
from burnish.compare.statistics import Matrix, holm, interval, paired_test
from burnish.core.loop import loop
from burnish.core.step import Settings, Step
from burnish.core.types import Clock, Group
from burnish.evals.evaluate import Interval, held_out_tasks
from burnish.methods.table import find
from burnish.models.build import Models, build
from burnish.models.known_models import resolve
from burnish.report.charts import Form, Line, line_chart, percent, short, standalone
from burnish.rollout.given import given
from burnish.rollout.sample import sample
from burnish.score.judge import judge, reply_text
from burnish.tasks.data import Dataset
from burnish.tasks.source import Source
from burnish.tasks.table import source as built_in

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Measure:
    """One number per held-out task of a run: its name in the stored rows, its title, and how it is written."""

    name: str
    title: str
    form: Form = percent
    bounds: tuple[float, float] | None = (0.0, 1.0)


RIGHT = Measure("right", "right replies")
LENGTH = Measure("length", "tokens of a reply", short, None)
PAIRS = Measure("pairs", "held-out pairs")


@dataclass(frozen=True)
class Rig:
    """An experiment.

    task        the built-in task whose held-out problems are answered after a run
    conditions  name of a condition -> its training data
    options     of a method under a condition, besides its defaults
    clean       held-out pairs that every run is asked about; None where conditions have different ones
    """

    task: str
    methods: Sequence[str]
    conditions: Mapping[str, Source]
    options: Callable[[str, str], dict[str, Any]] = lambda method, condition: {}
    clean: Source | None = None
    about: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Size:
    """How much is trained and asked."""

    steps: int
    prompts: int
    lr: float
    seeds: int
    tasks: int = 100
    replies: int = 4

    @property
    def settings(self) -> Settings:
        return Settings(prompts=self.prompts, lr=self.lr, lr_warmup=0.1, max_new_tokens=64)


# ------------------------------------------------------------------------------------------------------------ running


class Bench:
    """The held-out problems and pairs, with what the start model says about the pairs."""

    def __init__(self, rig: Rig, size: Size) -> None:
        self.rig, self.size, self.source = rig, size, built_in(rig.task)
        self.tasks = held_out_tasks(self.source, size.tasks)

    def run(self, method: str, condition: str, seed: int) -> dict[str, Any]:
        """One run in memory, and its numbers on each held-out task."""
        built = find(method).build(self.rig.conditions[condition], **self.rig.options(method, condition))
        models = build(built.models, resolve("tiny"), self.size.settings, device="cpu")
        for report in loop(built, models, self.size.settings, steps=self.size.steps, seed=seed):
            if report.metrics.get("refused"):
                raise SystemExit(f"{method} under {condition}: the update was rejected")
        return {"method": method, "condition": condition, "seed": seed, **self.numbers(models)}

    def numbers(self, models: Models) -> dict[str, list[float]]:
        found = self.replies(models)
        if self.rig.clean is not None:
            found["pairs"] = preferred(self.start, pair_log_probs(models, self.pairs))
        return found

    def replies(self, models: Models) -> dict[str, list[float]]:
        """Of each held-out problem, the share of right replies and their mean length in tokens."""
        step = Step(Clock(0, 1, 0), models, self.size.settings)
        groups = sample(self.size.replies, temperature=1.0, tag="evaluate").call(self.tasks, step)
        traces = [(group.task, trace) for group in groups for trace in group.traces]
        texts = [reply_text(trace, models["policy"].chat) for _, trace in traces]
        verdicts = judge(self.source, [task for task, _ in traces], texts)
        right = np.array([verdict.correct for verdict in verdicts], dtype=float)
        lengths = np.array([int(trace.by("policy").sum()) for _, trace in traces], dtype=float)
        by_task = {"right": right, "length": lengths}
        return {name: numbers.reshape(len(groups), -1).mean(1).tolist() for name, numbers in by_task.items()}

    @cached_property
    def pairs(self) -> list[Group]:
        """The clean held-out pairs as traces: the preferred reply first."""
        assert self.rig.clean is not None
        tasks = held_out_tasks(self.rig.clean, sys.maxsize)
        return given("chosen", "rejected").call(tasks, Step(Clock(0, 1, 0), self.start_models, Settings()))

    @cached_property
    def start_models(self) -> Models:
        return build(find("dpo").build(built_in("sort")).models, resolve("tiny"), Settings(), device="cpu")

    @cached_property
    def start(self) -> Matrix:
        return pair_log_probs(self.start_models, self.pairs)


def pair_log_probs(models: Models, groups: list[Group]) -> Matrix:
    """[pairs, 2]: the policy's log-probs of the preferred and the other reply."""
    traces = [trace for group in groups for trace in group.traces]
    found = models["policy"].streams(traces, [trace.by("demo") for trace in traces], {"logp"}, 8192)
    return np.array([float(stream["logp"].nansum()) for stream in found]).reshape(-1, 2)


def preferred(start: Matrix, end: Matrix) -> list[float]:
    """1 for each pair whose preferred reply gained more log-prob than the other, 1/2 for a tie."""
    gains = end - start
    return ((gains[:, 0] > gains[:, 1]) + 0.5 * (gains[:, 0] == gains[:, 1])).tolist()


def measured(rig: Rig, size: Size, out: Path) -> dict[str, Any]:
    """All runs, seed after seed, those that `out` has already left out; written after each run."""
    about = {"model": "tiny", "task": rig.task, **rig.about, **vars(size)}
    about |= {"methods": list(rig.methods), "conditions": list(rig.conditions)}
    stored = json.loads(out.read_text()) if out.is_file() else {}
    same = all(stored.get(key) == value for key, value in about.items() if key != "seeds")
    bench = Bench(rig, size)
    found = {**about, "start": _rounded(bench.numbers(bench.start_models)), "rows": stored["rows"] if same else []}
    done = {(row["method"], row["condition"], row["seed"]) for row in found["rows"]}
    for seed, condition, method in itertools.product(range(size.seeds), rig.conditions, rig.methods):
        if (method, condition, seed) in done:
            continue
        start = time.perf_counter()
        row = bench.run(method, condition, seed)
        found["rows"].append(_rounded(row))
        _write(out, found)
        said = {name: round(statistics.fmean(row[name]), 4) for name in ("right", "length", "pairs") if name in row}
        print(f"{method} {condition} {seed} {said} {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
    return found


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {key: [round(x, 4) for x in value] if isinstance(value, list) else value for key, value in row.items()}


def _write(out: Path, found: dict[str, Any]) -> None:
    """One line a run, written aside and put in place whole."""
    about = json.dumps({key: value for key, value in found.items() if key != "rows"}, indent=1)[:-2]
    rows = ",\n  ".join(json.dumps(row) for row in found["rows"])
    aside = out.with_suffix(".part")
    aside.write_text(f'{about},\n "rows": [\n  {rows}\n ]\n}}\n')
    aside.replace(out)


def make_pairs(file: Path, *words: str) -> None:
    """`burnish pairs` on `tiny`, or on the model that the words name."""
    named = [] if "--model" in words else ["--model", "tiny"]
    if burnish(["pairs", *named, *words, "--device", "cpu", "--out", str(file)]):
        raise SystemExit("burnish pairs failed")


def dataset(rows: Sequence[Mapping[str, Any]], name: str, heldout: float) -> Dataset:
    return Dataset([dict(row) for row in rows], name=name, heldout=heldout)


# --------------------------------------------------------------------------------------------------------- statistics


def scores(found: Mapping[str, Any], measure: Measure, method: str, condition: str) -> Matrix:
    """x[s, t]: the number of the run with seed s on held-out task t."""
    rows = [row for row in found["rows"] if (row["method"], row["condition"]) == (method, condition)]
    return np.array([row[measure.name] for row in sorted(rows, key=lambda row: row["seed"])])


def estimate(found: Mapping[str, Any], measure: Measure, method: str, condition: str) -> Interval:
    return interval(scores(found, measure, method, condition), measure.bounds)


@dataclass(frozen=True)
class Difference:
    """The difference of two means, and p after Holm's correction.

    first  the method that it is compared with; of `shifts` the condition
    """

    condition: str
    method: str
    first: str
    by: Interval
    p: float

    @property
    def significant(self) -> bool:
        return self.p <= SIGNIFICANT


def differences(found: Mapping[str, Any], measure: Measure) -> list[Difference]:
    """Every method against the first, by the permutation tests of `burnish compare`; Holm's correction within a
    condition.
    """
    first, *others = found["methods"]
    result = []
    for condition in found["conditions"]:
        base = scores(found, measure, first, condition)
        tests = [paired_test(scores(found, measure, other, condition), base) for other in others]
        corrected = holm([test.p for test in tests])
        result += [
            Difference(condition, other, first, test.difference, p)
            for other, test, p in zip(others, tests, corrected, strict=True)
        ]
    return result


def shifts(found: Mapping[str, Any], measure: Measure) -> list[Difference]:
    """Every method under the other conditions against itself under the first; Holm's correction over all of them."""
    first, *others = found["conditions"]
    asked = [(method, condition) for condition in others for method in found["methods"]]
    tests = [paired_test(scores(found, measure, m, c), scores(found, measure, m, first)) for m, c in asked]
    corrected = holm([test.p for test in tests])
    return [
        Difference(condition, method, first, test.difference, p)
        for (method, condition), test, p in zip(asked, tests, corrected, strict=True)
    ]


def shift_table(found: Mapping[str, Any], measure: Measure) -> list[str]:
    """The differences between conditions with their 95% intervals, as a Markdown table."""
    scale = 100 if measure.bounds else 1
    lines = ["| method | difference | 95% interval | p |", "|---|---|---|---|"]
    for one in shifts(found, measure):
        low, high = scale * one.by.low, scale * one.by.high
        lines.append(f"| `{one.method}` | {scale * one.by.mean:+.1f} | [{low:+.1f}, {high:+.1f}] | {one.p:.3f} |")
    return lines


def table(found: Mapping[str, Any], measure: Measure, heading: str) -> list[str]:
    """Means with half the width of their 95% intervals, as a Markdown table; * marks a difference from the first."""
    marked = {(d.condition, d.method) for d in differences(found, measure) if d.significant}
    methods = found["methods"]
    lines = [f"| {heading} | " + " | ".join(f"`{name}`" for name in methods) + " |", "|---|" + "---|" * len(methods)]
    for condition in found["conditions"]:
        cells = []
        for method in methods:
            x = estimate(found, measure, method, condition)
            scale, digits = (100, "%") if measure.bounds else (1, "")
            star = "\\*" if (condition, method) in marked else ""
            cells.append(f"{scale * x.mean:.1f}{digits} ± {scale * (x.high - x.low) / 2:.1f}{star}")
        lines.append(f"| {condition} | " + " | ".join(cells) + " |")
    return lines


def drawn(
    found: Mapping[str, Any], measure: Measure, title: str, x: str, at: Callable[[str], float] | None = None
) -> str:
    """The mean of each method by condition, with its 95% interval as a band. at: where a condition is on the x axis."""
    places = {name: at(name) if at else float(i + 1) for i, name in enumerate(found["conditions"])}
    lines = []
    for method in found["methods"]:
        means = {places[name]: estimate(found, measure, method, name) for name in found["conditions"]}
        band = [(place, one.low, one.high) for place, one in means.items()]
        lines.append(Line(method, [(place, one.mean) for place, one in means.items()], band))
    start = statistics.fmean(found["start"][measure.name])
    form = percent if at else short
    return standalone(
        line_chart(lines, title=title, x=x, y=measure.title, x_form=form, y_form=measure.form, rule=start)
    )


# ------------------------------------------------------------------------------------------------------------- flags


def flags(doc: str, out: Path, svg: Path, size: Size) -> argparse.Namespace:
    """The flags of an experiment's script."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=320, help="prompts that pairs are made of")
    for name in ("steps", "prompts", "seeds"):
        parser.add_argument(f"--{name}", type=int, default=getattr(size, name))
    parser.add_argument("--lr", type=float, default=size.lr)
    parser.add_argument("--out", type=Path, default=out)
    parser.add_argument("--svg", type=Path, default=svg)
    parser.add_argument("--draw", action="store_true", help="draw the stored results instead of measuring")
    torch.set_num_threads(1)
    return parser.parse_args()


def sized(asked: argparse.Namespace, size: Size) -> Size:
    return Size(asked.steps, asked.prompts, asked.lr, asked.seeds, size.tasks, size.replies)
