"""The final table of a recipe: each stage with held-out results before and after, minutes and tokens."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table

from burnish.evals.better import GREEDY, SAMPLED, written
from burnish.evals.heldout import Outcome
from burnish.recipes.state import StageState
from burnish.report.measured import estimate

COLUMNS = ("stage", "what", "held-out", "before", "after", "minutes", "tokens")


def rows(stages: Iterable[StageState]) -> list[list[str]]:
    """The cells of the table; the measure of each stage, with that of greedy or sampled replies in brackets."""
    return [
        [
            one.name + ("" if one.done else " (not done)"),
            one.what,
            _measured(one),
            _shown(one.before),
            _shown(one.after) or _number(one.numbers),
            f"{one.seconds / 60:.1f}",
            f"{one.tokens:,}" if one.tokens else "",
        ]
        for one in stages
    ]


def table(stages: Iterable[StageState]) -> Table:
    """The table for a terminal."""
    shown = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for column in COLUMNS:
        shown.add_column(column, justify="right" if column in ("minutes", "tokens") else "left", no_wrap=True)
    for row in rows(stages):
        shown.add_row(*row)
    return shown


def lines(stages: Iterable[StageState]) -> list[str]:
    """The table as plain text."""
    cells = [list(COLUMNS), *rows(stages)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(COLUMNS))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _measured(one: StageState) -> str:
    names = [str(measure["name"]).removeprefix("held-out ") for measure in (one.before, one.after) if measure]
    return " -> ".join(dict.fromkeys(names)) or str(one.numbers.get("measure", "rows" if "rows" in one.numbers else ""))


def _shown(stored: dict[str, object] | None) -> str:
    if stored is None:
        return ""
    outcome = Outcome.from_json(stored)
    value = estimate(outcome).partition(" [")[0]
    if outcome.measure in GREEDY:
        return value if outcome.greedy is None else f"{value} (greedy {written(outcome.measure, outcome.greedy.mean)})"
    right = outcome.sampled.accuracy if outcome.sampled is not None else None
    return value if right is None else f"{value} ({written(SAMPLED, right.mean)} of sampled replies right)"


def _number(numbers: dict[str, object]) -> str:
    """The main number of a stage that measures or writes a file."""
    if "rows" in numbers:
        return f"{numbers['rows']:,}"
    greedy = numbers.get("greedy") or numbers.get("accuracy")
    if not isinstance(greedy, dict):
        return ""
    by_k = numbers.get("pass")
    sampled = by_k.get("1") if isinstance(by_k, dict) else None
    return f"{greedy['mean']:.1%}" + (f" ({sampled['mean']:.1%})" if sampled else "")
