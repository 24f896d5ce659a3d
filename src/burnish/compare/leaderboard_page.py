"""docs/leaderboard.md: every method on several tasks, with intervals and the range over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from burnish.compare.budget import Budget, written
from burnish.compare.helpers import needs
from burnish.compare.job import RunResult
from burnish.compare.results import by_label
from burnish.compare.statistics import interval
from burnish.evals.evaluate import Interval
from burnish.methods.index import INDEX
from burnish.methods.table import find
from burnish.report.charts import Row, interval_chart, percent, standalone
from burnish.report.show import built

_MODELS = {"teacher": "a teacher", "reward": "a reward model", "dpo": "a DPO policy"}
INTRODUCTION = """\
Every registered method on three built-in tasks, from the embedded model `tiny`. Each run has a budget of **{budget}**
([what is counted](compare.md)). All options have their defaults, which are the papers'.

The papers used larger models and longer runs. This page shows what each method does with a small budget at a size that
fits a laptop, not how good its idea is. Methods that train a value model first have hardly begun. Methods that learn
from demonstrations (or from a teacher that did) see worked solutions, which the others have to find: compare methods of
the same kind.

Numbers are held-out accuracy in percent, sampled at temperature 1. `[low, high]` is the 95% interval over seeds and
held-out tasks together, widened for the small number of seeds. The lowest and the highest seed are in round brackets.
Where two intervals overlap widely, the order of two rows is chance; `burnish compare A B --seeds 8` can decide it.

`python scripts/leaderboard.py` writes this page; its runs are in `benchmarks/leaderboard.json`."""
KINDS = ("scores", "demonstrations", "pairs", "another model")  # in the order of the plot's colours


@dataclass(frozen=True)
class Cell:
    """A method on a task: the estimate, each seed's mean, and the score before training."""

    value: Interval
    seeds: tuple[float, ...]
    start: float
    matrix: np.ndarray  # [seeds, tasks], the share of correct replies

    def __str__(self) -> str:
        low, high = min(self.seeds), max(self.seeds)
        spread = f" ({100 * low:.0f} to {100 * high:.0f})" if len(self.seeds) > 1 else ""
        return f"{100 * self.value.mean:.1f} [{100 * self.value.low:.0f}, {100 * self.value.high:.0f}]{spread}"


def cell(rows: Sequence[RunResult]) -> Cell | None:
    """The results of one method on one task; None if no run has evaluated replies."""
    good = [row for row in rows if row.done and row.right]
    if not good:
        return None
    matrix = np.array([row.right for row in good]) / np.array([[row.replies] for row in good])
    start = float(np.mean([row.curve[0].value for row in good]))
    return Cell(interval(matrix), tuple(float(v) for v in matrix.mean(1)), start, matrix)


def learns_from(name: str) -> str:
    """The kinds of data that a method trains on: a verifier's scores, demonstrations, pairs, another model."""
    if name not in INDEX:
        return ""
    entry = find(name)
    parts = [placed.part for phase in built(entry).phases for placed in phase.parts()]
    read = {name for part in parts for name in part.reads}
    kinds = ["scores"] if any(part.name.startswith(("verify", "play", "hinted")) for part in parts) else []
    kinds += ["demonstrations"] if "given:demo" in read else []
    kinds += ["pairs"] if "given:chosen" in read else []
    return " + ".join([*kinds, *dict.fromkeys(_MODELS[kind] for kind in needs(entry).values())]) or "its own replies"


def kind_of(name: str) -> int:
    """The index in KINDS of the most informative data of a method: another model, demonstrations, pairs, or scores."""
    data = learns_from(name)
    if " model" in data or "a teacher" in data or "policy" in data:
        return 3
    return 1 if "demo" in data else 2 if "pairs" in data else 0


@dataclass(frozen=True)
class Ranks:
    """The ranking: methods that were trained on every task, best first, with their cells and all their runs."""

    order: tuple[str, ...]
    cells: dict[str, dict[str, Cell]]
    runs: dict[str, list[RunResult]]
    tasks: tuple[str, ...]

    def mean(self, name: str) -> Interval:
        """The mean over the tasks with equal weights; the interval uses the seeds that all tasks have."""
        cells = [self.cells[name][task] for task in self.tasks]
        seeds = min(len(cell.matrix) for cell in cells)
        return interval(np.hstack([cell.matrix[:seeds] for cell in cells]))


def ranks(rows: Sequence[RunResult], tasks: Sequence[str]) -> Ranks:
    """Rank the methods by their mean over the tasks."""
    runs = by_label(rows)
    cells = {
        name: {task: here for task in tasks if (here := cell([row for row in method_rows if row.task == task]))}
        for name, method_rows in runs.items()
    }
    trained = {
        name for name, method_rows in runs.items() if any(row.done and row.spent["steps"] for row in method_rows)
    }
    complete = [name for name, method_rows in cells.items() if len(method_rows) == len(tasks) and name in trained]
    unordered = Ranks((), cells, runs, tuple(tasks))
    means = {name: unordered.mean(name).mean for name in complete}
    return replace(unordered, order=tuple(sorted(complete, key=lambda name: (-means[name], name))))


def plot(table: Ranks, budget: Budget) -> str:
    """The ranking as an SVG chart: means over the tasks with intervals, coloured by the data a method trains on."""
    rows = []
    for name in table.order:
        mean, kind = table.mean(name), kind_of(name)
        rows.append(Row(name, mean.mean, mean.low, mean.high, f"{percent(mean.mean)}  {KINDS[kind]}", kind + 1))
    starts = [cell.start for name in table.order for cell in table.cells[name].values()]
    title = (
        f"Held-out accuracy after {written(budget.limit)} {budget.unit}, mean of {len(table.tasks)} tasks; "
        "the dashed line is the start"
    )
    start = sum(starts) / len(starts) if starts else None
    return standalone(interval_chart(rows, title=title, form=percent, x_range=(0.0, 1.0), rule=start, width=860))


def page(rows: Sequence[RunResult], budget: Budget, tasks: Sequence[str], picture: str = "") -> str:
    """The page in Markdown: the best of each kind, a chart, all methods by their mean, then partial results."""
    introduction = INTRODUCTION.format(budget=f"{written(budget.limit)} {budget.unit}")
    if not rows:
        return f"# Leaderboard\n\n{introduction}\n\nIt has not been run yet.\n"
    table = ranks(rows, tasks)
    seeds = max(len({row.seed for row in method_rows}) for method_rows in table.runs.values())
    done = [row for row in rows if row.done]
    hours = sum(row.spent["seconds"] for row in done) / 3600
    size = (
        f"{len(table.order)} methods in the table, {seeds} seeds each; {len(done)} runs in all, "
        f"{hours:.1f} hours of training on one core each."
    )
    lines = ["# Leaderboard", introduction, size]
    lines += ["## The best of each kind", _best(table)] if table.order else []
    lines += [f"![Every method with its interval]({picture})"] if picture and table.order else []
    lines += ["## Every method", _table(table)]
    others = [(name, method_rows) for name, method_rows in sorted(table.runs.items()) if name not in table.order]
    rest = [_elsewhere(name, method_rows, table.cells[name]) for name, method_rows in others]
    if rest:
        lines += ["## Measured otherwise, or in part", "\n".join(["| method | where | what |", "|---|---|---|", *rest])]
    return "\n\n".join(lines) + "\n"


def _best(table: Ranks, most: int = 3) -> str:
    lines = ["| learns from | methods | the best of them |", "|---|---|---|"]
    for i, kind in enumerate(KINDS):
        names = [name for name in table.order if kind_of(name) == i]
        best = ", ".join(f"[{name}](methods/{name}.md) {100 * table.mean(name).mean:.1f}" for name in names[:most])
        lines += [f"| {kind} | {len(names)} | {best} |"] if names else []
    return "\n".join(lines)


def _table(table: Ranks) -> str:
    starts = {task: np.mean([table.cells[name][task].start for name in table.order] or [0.0]) for task in table.tasks}
    heads = " | ".join(f"{task}, from {100 * start:.0f}" for task, start in starts.items())
    lines = [
        f"| # | method | learns from | mean [95%] | {heads} | steps | seconds |",
        f"|---|---|---|---|{'---|' * len(table.tasks)}---|---|",
    ]
    for place, name in enumerate(table.order, 1):
        done, mean = [row for row in table.runs[name] if row.done], table.mean(name)
        steps, seconds = (np.mean([row.spent[key] for row in done]) for key in ("steps", "seconds"))
        scores = " | ".join(str(table.cells[name][task]) for task in table.tasks)
        estimate = f"**{100 * mean.mean:.1f}** [{100 * mean.low:.0f}, {100 * mean.high:.0f}]"
        lines.append(
            f"| {place} | [{name}](methods/{name}.md) | {learns_from(name)} | {estimate} | {scores} | "
            f"{steps:.0f} | {seconds:.0f} |"
        )
    return "\n".join(lines)


def _elsewhere(name: str, rows: Sequence[RunResult], cells: dict[str, Cell]) -> str:
    """One row for a method that is not in the table: other tasks, another measure, or the reason of its failure."""
    done = [row for row in rows if row.done]
    apart = (
        ["trains nothing: what it chooses is judged"] if done and not any(row.spent["steps"] for row in done) else []
    )
    where = ", ".join(sorted({row.task for row in done})) or "-"
    texts = [*apart, *(f"{task}: {result}" for task, result in cells.items())]
    for task in sorted({row.task for row in done} - set(cells)):
        mine = [row for row in done if row.task == task]
        result = cell(mine)
        values = [row.value for row in mine]
        texts.append(
            f"{task}: {result}"
            if result
            else f"{mine[0].measure} {np.mean(values):.3f} ({min(values):.3f} to {max(values):.3f})"
        )
    texts += sorted({f"{row.task}: {row.reason}" for row in rows if not row.done})
    return f"| [{name}](methods/{name}.md) | {where} | {'; '.join(texts).replace('|', '/')} |"
