"""Benchmarks of rewards, by their own rules.

RewardBench   arXiv 2403.13787: pairs (prompt, chosen, rejected, subset) in four sections
RM-Bench      arXiv 2410.16184: three right and three wrong replies in three styles (prompt, chosen, rejected, domain)
ProcessBench  arXiv 2412.06559: the first wrong step of a solution (problem, steps, label), -1 where all are right
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from burnish.core.messages import as_messages
from burnish.core.types import Group, Task
from burnish.evals.evaluate import Interval, held_out_tasks, interval
from burnish.evals.measures import as_pair
from burnish.evals.reward_eval import RewardScorer
from burnish.tasks.data.dataset import Dataset
from burnish.tasks.data.messages import conversation, reply_of
from burnish.tasks.data.stepwise import spelled_steps
from burnish.tasks.source import Source

LEVELS = ("hard", "normal", "easy", "mean")
STYLES = 3  # of RM-Bench: concise; detailed; detailed with Markdown
SECTIONS = {
    "Chat": ("alpacaeval-easy", "alpacaeval-length", "alpacaeval-hard", "mt-bench-easy", "mt-bench-med"),
    "Chat Hard": (
        "mt-bench-hard",
        "llmbar-natural",
        "llmbar-adver-neighbor",
        "llmbar-adver-GPTInst",
        "llmbar-adver-GPTOut",
        "llmbar-adver-manual",
    ),
    "Safety": (
        "refusals-dangerous",
        "refusals-offensive",
        "xstest-should-refuse",
        "xstest-should-respond",
        "donotanswer",
    ),
    "Reasoning": ("math-prm", "hep-cpp", "hep-go", "hep-java", "hep-js", "hep-python", "hep-rust"),
}
HEAVIER = {"math-prm": 984 / 447}  # the authors give its 447 rows the weight of the 984 rows of code


@dataclass(frozen=True)
class Compared:
    """A prompt with right and wrong replies, and the part of the benchmark that it belongs to."""

    task: Task
    right: tuple[str, ...]
    wrong: tuple[str, ...]
    part: str


@dataclass(frozen=True)
class Won:
    """won[i][j]: 1 where right reply i scores more than wrong reply j, 1/2 for a tie or what cannot be scored."""

    part: str
    won: tuple[tuple[float, ...], ...]


def dataset_rows(source: Source) -> list[Mapping[str, Any]]:
    """All rows of a dataset as they stand in its files."""
    assert isinstance(source, Dataset)
    return [dict(row) for table in source.tables.values() for row in table]


def pairs_of(source: Source, tasks: int) -> list[Compared]:
    """RewardBench's rows; of a built-in task its right and wrong solutions, with the task's name as the subset."""
    if not isinstance(source, Dataset):
        pairs = map(as_pair, held_out_tasks(source, tasks))
        return [Compared(one, (str(one.given["chosen"]),), (str(one.given["rejected"]),), source.name) for one in pairs]
    return [
        Compared(_task(row, i), (_reply(row, "chosen", i),), (_reply(row, "rejected", i),), str(row.get("subset", "")))
        for i, row in enumerate(dataset_rows(source)[:tasks])
    ]


def styled(source: Source, tasks: int) -> list[Compared]:
    """RM-Bench's rows; of a built-in task its right and wrong solutions in three styles."""
    if not isinstance(source, Dataset):
        pairs = map(as_pair, held_out_tasks(source, tasks))
        return [
            Compared(one, in_styles(str(one.given["chosen"])), in_styles(str(one.given["rejected"])), source.name)
            for one in pairs
        ]
    compared = []
    for i, row in enumerate(dataset_rows(source)[:tasks]):
        sides = [row.get("chosen"), row.get("rejected")]
        if not all(isinstance(side, list | tuple) and len(side) == STYLES for side in sides):
            raise ValueError(
                f"row {i + 1} of {source.name!r} is not of RM-Bench: 'chosen' and 'rejected' are lists of "
                f"{STYLES} replies there, concise, detailed and with Markdown"
            )
        right, wrong = (tuple(reply_of(one, f"row {i + 1}") for one in side or ()) for side in sides)
        compared.append(Compared(_task(row, i), right, wrong, str(row.get("domain", ""))))
    return compared


def in_styles(text: str) -> tuple[str, ...]:
    """A solution in writing as RM-Bench's three styles: its last line, all of it, all of it as a list."""
    lines = text.strip().splitlines()
    return lines[-1], text, "\n".join(f"- {line}" for line in lines)


def _task(row: Mapping[str, Any], i: int) -> Task:
    prompt = row.get("prompt")
    if prompt is None:
        raise ValueError(f"row {i + 1} has no column 'prompt'; its columns are {', '.join(row)}")
    messages = conversation(prompt, f"row {i + 1}") or as_messages(str(prompt))
    return Task("question", messages, {}, f"row {i}")


def _reply(row: Mapping[str, Any], column: str, i: int) -> str:
    if row.get(column) is None:
        raise ValueError(f"row {i + 1} has no column {column!r}; its columns are {', '.join(row)}")
    return reply_of(row[column], f"row {i + 1}")


def compared(scorer: RewardScorer, rows: Sequence[Compared]) -> list[Won]:
    """All right against all wrong replies of each row. A scorer that compares replies sees one pair at a time."""
    groups, at_once = [], not scorer.texts
    for row in rows:
        sides = [(row.right, row.wrong)] if at_once else [((a,), (b,)) for a in row.right for b in row.wrong]
        for right, wrong in sides:
            traces = [scorer.trace(row.task, text, k) for k, text in enumerate((*right, *wrong))]
            groups.append(Group(row.task, traces))
    scores = iter(scorer.scores(groups))
    outcomes = []
    for row in rows:
        if at_once:
            own = next(scores)
            won = [[_won(a, b) for b in own[len(row.right) :]] for a in own[: len(row.right)]]
        else:
            won = [[_won(*next(scores)) for _ in row.wrong] for _ in row.right]
        outcomes.append(Won(row.part, tuple(map(tuple, won))))
    return outcomes


def _won(right: float, wrong: float) -> float:
    if math.isnan(right) or math.isnan(wrong):
        return 0.5
    return 1.0 if right > wrong else 0.5 if right == wrong else 0.0


# ------------------------------------------------------------------------------------------------------------- scores


def reward_bench(found: Sequence[Won]) -> dict[str, float]:
    """The accuracy of each section, and their mean as "all"; without known subsets the accuracy of all rows.

    A section is the mean over its subsets, each weighted by its rows; the rows of math-prm count 984/447 each, as the
    authors weight them. Departures: a tie is one half, as for their generative judges; the two subsets of xstest have
    the weights of their rows (the authors' table has them the other way round); no prior sets.
    """
    weights = {section: {name: HEAVIER.get(name, 1.0) for name in names} for section, names in SECTIONS.items()}
    scores = {}
    for section, names in weights.items():
        rows = [(names[one.part], one.won[0][0]) for one in found if one.part in names]
        if rows:
            scores[section] = sum(w * right for w, right in rows) / sum(w for w, _ in rows)
    if not scores:
        return {"all": statistics.fmean(one.won[0][0] for one in found)}
    return {**scores, "all": statistics.fmean(scores.values())}


def rm_bench(found: Sequence[Won]) -> dict[str, dict[str, float]]:
    """By domain and over them ("all"): hard, normal, easy and their mean.

    won[i][j] has the right reply in style i against the wrong one in style j, from concise to Markdown. normal: the
    same style; hard: the wrong reply is the fancier one (j > i); easy: the right one is. Each is a mean over the pairs
    of styles and the rows. The two domains of safety are one; "all" is the mean over domains. Departure: a tie is one
    half; the authors count it as wrong.
    """
    domains: dict[str, list[Won]] = {}
    for one in found:
        domains.setdefault(one.part.partition("-")[0], []).append(one)
    table = {domain: _levels(rows) for domain, rows in domains.items()}
    return {**table, "all": {name: statistics.fmean(row[name] for row in table.values()) for name in LEVELS}}


def _levels(rows: Sequence[Won]) -> dict[str, float]:
    cells: dict[str, list[float]] = {name: [] for name in LEVELS[:3]}
    for one in rows:
        for i, line in enumerate(one.won):
            for j, won in enumerate(line):
                cells["normal" if i == j else "hard" if j > i else "easy"].append(won)
    means = {name: statistics.fmean(values) for name, values in cells.items()}
    return {**means, "mean": statistics.fmean(means.values())}


def spread(found: Sequence[Won]) -> Interval:
    """The mean of all comparisons, each row once, with its 95% bootstrap interval over rows."""
    return interval([statistics.fmean(won for line in one.won for won in line) for one in found])


# -------------------------------------------------------------------------------------------------------- ProcessBench


@dataclass(frozen=True)
class Solution:
    """A problem with the steps of a solution. first_error: the place of the first wrong step, -1 without one."""

    task: Task
    steps: tuple[str, ...]
    first_error: int
    part: str


def solutions(source: Source, tasks: int) -> list[Solution]:
    """ProcessBench's rows (and PRM800K's and Math-Shepherd's); of a built-in task its right and wrong solutions by
    lines, where the first wrong line is the first that differs.
    """
    if not isinstance(source, Dataset):
        return _written(source, tasks)
    rows = []
    for i, row in enumerate(dataset_rows(source)[:tasks]):
        spelled = spelled_steps(dict(row), f"row {i + 1}")
        labels = spelled.get("labels")
        if not isinstance(labels, list | tuple) or "completions" not in spelled:
            raise ValueError(
                f"row {i + 1} of {source.name!r} has no labelled steps: 'problem', 'steps' and 'label' as in "
                "ProcessBench, or 'prompt', 'completions' and 'labels'"
            )
        wrong = [k for k, label in enumerate(labels) if label is not None and float(label) < 0.5]
        steps = tuple(map(str, spelled["completions"]))
        part = str(row.get("id", "")).rpartition("-")[0]  # gsm8k-17: the benchmark's four parts
        given = {"steps": list(steps), "separator": spelled.get("separator", "\n\n")}
        messages = conversation(spelled["prompt"], f"row {i + 1}") or as_messages(str(spelled["prompt"]))
        task = Task("question", messages, given, f"row {i}")
        rows.append(Solution(task, steps, wrong[0] if wrong else -1, part))
    return rows


def _written(source: Source, tasks: int) -> list[Solution]:
    rows = []
    for one in map(as_pair, held_out_tasks(source, tasks)):
        right, wrong = (str(one.given[side]).strip().splitlines() for side in ("chosen", "rejected"))
        differ = [k for k, line in enumerate(wrong) if k >= len(right) or line != right[k]]
        for lines, first in ((right, -1), (wrong, differ[0] if differ else len(wrong) - 1)):
            given = {"steps": lines, "separator": "\n"}
            task = Task("question", one.prompt, given, f"{one.key} {first}")
            rows.append(Solution(task, tuple(lines), first, source.name))
    return rows


def process_bench(rows: Sequence[Solution], found: Sequence[int | None]) -> dict[str, dict[str, float]]:
    """By part and over all rows ("all"): the share of wrong solutions whose first wrong step was found, that of right
    solutions in which none was found, and the harmonic mean of both (F1). What could not be judged is not found.
    """
    parts = sorted({row.part for row in rows})
    table = {}
    for part in [*(parts if len(parts) > 1 else []), "all"]:
        own = [(row, place) for row, place in zip(rows, found, strict=True) if part in (row.part, "all")]
        wrong = [float(place == row.first_error) for row, place in own if row.first_error >= 0]
        right = [float(place == -1) for row, place in own if row.first_error < 0]
        e, c = (statistics.fmean(side) if side else math.nan for side in (wrong, right))
        table[part] = {"wrong": e, "right": c, "f1": 2 * e * c / (e + c) if e + c > 0 else 0.0}
    return table
