"""The leaderboard in a terminal."""

from __future__ import annotations

import math
from collections.abc import Callable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from burnish.compare import phrasing
from burnish.compare.board import Board, Standing
from burnish.compare.budget import written

_BLOCKS = " ▁▂▃▄▅▆▇█"


def show(board: Board, console: Console) -> None:
    """Print the table, the pairs, warnings, and failed runs."""
    console.print()
    console.print(
        Text.assemble(
            (f"Held-out {board.measure.removeprefix('held-out ')}", "bold"),
            (f"   {phrasing.method_note(board)}", "dim"),
        )
    )
    console.print(_standings(board, console.width))
    if len(board.pairs) > 1:
        console.print(_pairs(board))
    for sentence in phrasing.cautions(board):
        console.print(Text(f"! {sentence}", "yellow"))
    for row in board.failures:
        console.print(Text(f"  {row.label}, seed {row.seed}: {row.reason}", "yellow"), soft_wrap=True)


def _standings(board: Board, width: int) -> Table:
    """The ranked candidates; less important columns are left out of a narrow terminal."""
    k = max((k for one in board.standings for k in one.passes), default=0)

    def passed(one: Standing) -> str:
        return phrasing.number(one.passes[k].mean, True) if k in one.passes else "-"

    pass_width, reach_width = 100 if k > 1 else math.inf, 140 if board.threshold is not None else math.inf
    columns: list[tuple[str, float, Callable[[int, Standing], Text]]] = [  # header, terminal width it needs, cell
        ("", 0, lambda place, one: Text(str(place), "dim")),
        ("candidate", 0, lambda place, one: Text(one.label, "bold cyan")),
        ("mean", 0, lambda place, one: Text(phrasing.number(one.value.mean, board.percent), "bold")),
        ("95% interval", 0, lambda place, one: Text(phrasing.ranged(one.value, board.percent))),
        ("seeds", 118, lambda place, one: Text(phrasing.spread(one, board), "dim")),
        (f"pass@{k}", pass_width, lambda place, one: Text(passed(one))),
        ("curve", 92, lambda place, one: Text(spark(one))),
        (phrasing.against_whom(board), 0, lambda place, one: _verdict(one, board)),
        (_level(board), reach_width, lambda place, one: Text(phrasing.reach(one, board))),
        ("steps", 155, lambda place, one: Text(f"{one.cost('steps'):.0f}")),
        ("seconds", 128, lambda place, one: Text(written(one.cost("seconds")))),
    ]
    columns = [column for column in columns if column[1] <= width]
    table = _table()
    for head, _, _ in columns:
        table.add_column(
            head,
            justify="right" if head in ("mean", "steps", "seconds", f"pass@{k}") else "left",
            no_wrap=head == "mean",
        )
    for place, one in enumerate(board.standings, 1):
        table.add_row(*(cell(place, one) for _, _, cell in columns))
    return table


def _verdict(one: Standing, board: Board) -> Text:
    text = phrasing.against(one, board)
    return Text(text, "green" if text.startswith("be") else "red" if text.startswith("worse") else "dim")


def _level(board: Board) -> str:
    return (
        "" if board.threshold is None else f"{board.budget.unit} to {phrasing.number(board.threshold, board.percent)}"
    )


def _pairs(board: Board) -> Table:
    table = _table()
    table.title, table.title_justify, table.title_style = "Pairs", "left", "bold"
    points = "difference in points [95%]" if board.percent else "difference [95%]"
    for head in ("", points, "p, corrected", "verdict"):
        table.add_column(head)
    for pair in board.pairs:
        table.add_row(
            Text(f"{pair.a} - {pair.b}"),
            Text(phrasing.gap(pair.test.difference, board.percent)),
            Text(phrasing.p_value(pair.adjusted)),
            Text(phrasing.verdict(pair, board), "bold" if pair.distinct else "dim"),
        )
    return table


def spark(one: Standing) -> str:
    """The learning curve as a sparkline of eight characters, from 0 to 1 (or the highest mean, if larger)."""
    means = [value.mean for _, value in one.curve][::2]
    top = max(1.0, *means) if means else 1.0
    return "".join(_BLOCKS[max(1, round(mean / top * 8))] for mean in means)


def _table() -> Table:
    return Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
