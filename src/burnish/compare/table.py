"""The leaderboard in a terminal."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from burnish.compare import words
from burnish.compare.board import Board, Standing
from burnish.compare.budget import written

_BLOCKS = " ▁▂▃▄▅▆▇█"


def show(board: Board, console: Console) -> None:
    """Print the table, the pairs, what to be careful about, and what failed."""
    console.print()
    console.print(
        Text.assemble(
            (f"Held-out {board.measure.removeprefix('held-out ')}", "bold"), (f"   {words.method_note(board)}", "dim")
        )
    )
    console.print(_standings(board, console.width))
    if len(board.pairs) > 1:
        console.print(_pairs(board))
    for sentence in words.cautions(board):
        console.print(Text(f"! {sentence}", "yellow"))
    for row in board.failures:
        console.print(Text(f"  {row.label}, seed {row.seed}: {row.reason}", "yellow"), soft_wrap=True)


def _standings(board: Board, width: int) -> Table:
    """The widest columns come only where there is room for them."""
    k = max((k for one in board.standings for k in one.passes), default=0)
    columns: list[tuple[str, int, Callable[[int, Standing], Text]]] = [  # head, the width it needs, what stands there
        ("", 0, lambda place, one: Text(str(place), "dim")),
        ("candidate", 0, lambda place, one: Text(one.label, "bold cyan")),
        ("mean", 0, lambda place, one: Text(words.number(one.value.mean, board.percent), "bold")),
        ("95% interval", 0, lambda place, one: Text(words.ranged(one.value, board.percent))),
        ("seeds", 118, lambda place, one: Text(words.spread(one, board), "dim")),
        (f"pass@{k}", 100 if k > 1 else 9999, lambda place, one: Text(words.number(one.passes[k].mean, True) if k in one.passes else "-")),
        ("curve", 92, lambda place, one: Text(spark(one))),
        (words.against_whom(board), 0, lambda place, one: _verdict(one, board)),
        (_level(board), 140 if board.threshold is not None else 9999, lambda place, one: Text(words.reach(one, board))),
        ("steps", 155, lambda place, one: Text(f"{one.cost('steps'):.0f}")),
        ("seconds", 128, lambda place, one: Text(written(one.cost("seconds")))),
    ]  # fmt: skip
    columns = [column for column in columns if column[1] <= width]
    table = _table()
    for head, _, _ in columns:
        table.add_column(
            head,
            justify="right" if head in ("mean", "steps", "seconds", f"pass@{k}") else "left",
            no_wrap=head == "mean",
        )
    for place, one in enumerate(board.standings, 1):
        table.add_row(*(what(place, one) for _, _, what in columns))
    return table


def _verdict(one: Standing, board: Board) -> Text:
    said = words.against(one, board)
    return Text(said, "green" if said.startswith("be") else "red" if said.startswith("worse") else "dim")


def _level(board: Board) -> str:
    return "" if board.threshold is None else f"{board.budget.unit} to {words.number(board.threshold, board.percent)}"


def _pairs(board: Board) -> Table:
    table = _table()
    table.title, table.title_justify, table.title_style = "Pairs", "left", "bold"
    points = "difference in points [95%]" if board.percent else "difference [95%]"
    for head in ("", points, "p, all pairs together", "so"):
        table.add_column(head)
    for pair in board.pairs:
        said = words.verdict(pair, board)
        table.add_row(
            Text(f"{pair.a} - {pair.b}"), Text(words.gap(pair.test.difference, board.percent)),
            Text(words.p_value(pair.adjusted)), Text(said, "bold" if pair.distinct else "dim"),
        )  # fmt: skip
    return table


def spark(one: Standing) -> str:
    """The learning curve in eight characters, from 0 to the highest it could be."""
    means = [value.mean for _, value in one.curve][::2]
    top = max(1.0, *means) if means else 1.0
    return "".join(_BLOCKS[max(1, round(mean / top * 8))] for mean in means)


def _table() -> Table:
    return Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
