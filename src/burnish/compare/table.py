"""The leaderboard in a terminal."""

from __future__ import annotations

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
    table = _table()
    wide = width >= 130
    heads = ["", "candidate", "mean", "95% interval", "seeds", "curve", "against the best"]
    k = max((k for one in board.standings for k in one.passes), default=0)
    if k > 1:
        heads.insert(5, f"pass@{k}")
    if board.threshold is not None:
        heads.append(f"{board.budget.unit} to {words.number(board.threshold, board.percent)}")
    if wide:
        heads += ["steps", "seconds"]
    for head in heads:
        table.add_column(head, justify="right" if head in ("mean", "steps", "seconds", f"pass@{k}") else "left", no_wrap=head != "against the best")  # fmt: skip
    for place, one in enumerate(board.standings, 1):
        said = words.against_best(one, board)
        colour = "green" if said == "best" else "red" if said.startswith("worse") else "dim"
        cells = [
            Text(str(place), "dim"), Text(one.label, "bold cyan"), Text(words.number(one.value.mean, board.percent), "bold"),
            Text(words.ranged(one.value, board.percent)), Text(words.spread(one, board), "dim"),
            Text(spark(one)), Text(said, colour),
        ]  # fmt: skip
        if k > 1:
            cells.insert(5, Text(words.number(one.passes[k].mean, True) if k in one.passes else "-"))
        if board.threshold is not None:
            cells.append(Text(words.reach(one, board)))
        if wide:
            cells += [Text(f"{one.cost('steps'):.0f}"), Text(written(one.cost("seconds")))]
        table.add_row(*cells)
    return table


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
