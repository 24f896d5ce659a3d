"""What flags and parts do, for people: tables in the terminal and in the page."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from burnish.compare import words
from burnish.compare.board import Board
from burnish.compare.page import scrolling
from burnish.compare.page import table as html_table
from burnish.compare.sweep import Effect
from burnish.report.charts import Row, interval_chart, points, short

LUCK = "The best of many settings is partly luck: compare it again, with seeds of its own, before believing its lead."


def show_effects(effects: Sequence[Effect], board: Board, console: Console) -> None:
    """The effect of each value, in the terminal."""
    if not effects:
        return
    console.print()
    console.print(Text.assemble(("What each value does", "bold"), (f"   {_how(effects)}", "dim")))
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    unit = "against other values, points [95%]" if board.percent else "against other values [95%]"
    for head in ("flag", "value", "trials", "mean", unit, ""):
        table.add_column(head, justify="right" if head in ("trials", "mean") else "left")
    last = ""
    for one in effects:
        table.add_row(
            Text(one.flag if one.flag != last else "", "cyan"), one.value, str(one.trials), words.number(one.mean, board.percent),
            words.gap(one.difference, board.percent), Text(said(one), "bold" if _shown(one) else "dim"),
        )  # fmt: skip
        last = one.flag
    console.print(table)
    console.print(Text(f"! {LUCK}", "yellow"))


def effects_html(effects: Sequence[Effect], board: Board) -> str:
    """The same as a chart and a table."""
    if not effects:
        return ""
    rows = [
        [(one.flag, "name"), (one.value, ""), (str(one.trials), ""), (words.number(one.mean, board.percent), ""),
         (words.gap(one.difference, board.percent), ""), (said(one), "good" if _shown(one) else "faint")]
        for one in effects
    ]  # fmt: skip
    drawn = [
        Row(f"{e.flag} {e.value}", e.difference.mean, e.difference.low, e.difference.high, "", 1, not _shown(e))
        for e in effects
    ]
    unit = "against other values, in points" if board.percent else "against other values"
    chart = interval_chart(drawn, x=unit, form=points if board.percent else short, rule=0.0, width=860)
    heads = ["flag", "value", "trials", "mean", f"{unit} [95%]", ""]
    return f"<h2>What each value does</h2>{scrolling(chart)}{html_table(heads, rows, (2, 3))}<p class=note>{_how(effects).capitalize()}. {LUCK}</p>"


def said(one: Effect) -> str:
    """An interval that holds zero shows nothing."""
    return "no effect shown" if not _shown(one) else "higher" if one.difference.mean > 0 else "lower"


def _shown(one: Effect) -> bool:
    return one.difference.low > 0 or one.difference.high < 0


def _how(effects: Sequence[Effect]) -> str:
    if all(one.matched for one in effects):
        return "everything else equal: the same other flags, the same seeds"
    return "against the trials with other values, whatever else they had"
