"""Effects of a sweep's flag values as tables, in the terminal and in HTML."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from burnish.compare import phrasing
from burnish.compare.board import Board
from burnish.compare.page import scrolling
from burnish.compare.page import table as html_table
from burnish.compare.sweep import Effect
from burnish.report.charts import Row, interval_chart, points, short

HIGHER = {True: "higher", False: "lower"}
LUCK = "The best of many settings is partly luck: compare it again, with new seeds, before relying on its lead."


def show_effects(effects: Sequence[Effect], board: Board, console: Console) -> None:
    """Print the effect of each value."""
    if not effects:
        return
    console.print()
    console.print(Text.assemble(("What each value does", "bold"), (f"   {_how(effects)}", "dim")))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    unit = "against other values, points [95%]" if board.percent else "against other values [95%]"
    for head in ("flag", "value", "trials", "mean", unit, ""):
        table.add_column(head, justify="right" if head in ("trials", "mean") else "left")
    last = ""
    for effect in effects:
        table.add_row(
            Text(effect.flag if effect.flag != last else "", "cyan"),
            effect.value,
            str(effect.trials),
            phrasing.number(effect.mean, board.percent),
            phrasing.gap(effect.difference, board.percent),
            Text(direction(effect, board), "bold" if _is_significant(effect, board) else "dim"),
        )
        last = effect.flag
    console.print(table)
    console.print(Text(f"! {LUCK}", "yellow"))


def effects_html(effects: Sequence[Effect], board: Board) -> str:
    """The effects as a chart and a table in HTML."""
    if not effects:
        return ""
    rows, drawn = [], []
    for effect in effects:
        significant, difference = _is_significant(effect, board), effect.difference
        rows.append(
            [
                (effect.flag, "name"),
                (effect.value, ""),
                (str(effect.trials), ""),
                (phrasing.number(effect.mean, board.percent), ""),
                (phrasing.gap(difference, board.percent), ""),
                (direction(effect, board), "good" if significant else "faint"),
            ]
        )
        name = f"{effect.flag} {effect.value}"
        drawn.append(Row(name, difference.mean, difference.low, difference.high, "", 1, not significant))
    unit = "against other values, in points" if board.percent else "against other values"
    chart = interval_chart(drawn, x=unit, form=points if board.percent else short, rule=0.0, width=860)
    heads = ["flag", "value", "trials", "mean", f"{unit} [95%]", ""]
    note = f"{_how(effects).capitalize()}. {LUCK}"
    return f"<h2>What each value does</h2>{scrolling(chart)}{html_table(heads, rows, (2, 3))}<p class=note>{note}</p>"


def direction(effect: Effect, board: Board) -> str:
    """higher or lower; "no effect shown" if the interval contains zero, "too few seeds to tell" with one seed."""
    if _one_seed(board):
        return "too few seeds to tell"
    return "no effect shown" if not _is_significant(effect, board) else HIGHER[effect.difference.mean > 0]


def _is_significant(effect: Effect, board: Board) -> bool:
    return not _one_seed(board) and (effect.difference.low > 0 or effect.difference.high < 0)


def _one_seed(board: Board) -> bool:
    """Whether a setting ran with one seed only: then the intervals are over tasks and settings, not over seeds."""
    return min(len(one.rows) for one in board.standings) < 2


def _how(effects: Sequence[Effect]) -> str:
    if all(effect.matched for effect in effects):
        return "everything else equal: the same other flags, the same seeds"
    return "compared with the trials with other values, over all other flags"
