"""Where an interval of the leaderboard may lie: a share between 0 and 1, anything else wherever its runs put it."""

from __future__ import annotations

import io
from dataclasses import asdict, replace

from rich.console import Console

from burnish.compare.board import board
from burnish.compare.budget import Budget, Spent
from burnish.compare.job import Mark, RunResult
from burnish.compare.leaderboard_page import plot, ranks
from burnish.compare.table import show
from burnish.util.terminal import PIPE_WIDTH

TOKENS = Budget("tokens", 1000.0)


def runs(measure: str) -> list[RunResult]:
    values = (1.0, 0.95, 0.4)
    return [
        RunResult(
            "one",
            "one",
            "sort",
            seed,
            TOKENS,
            "done",
            measure=measure,
            value=value,
            curve=(Mark(0, 0.0, 0.5), Mark(9, 999.0, value)),
        )
        for seed, value in enumerate(values)
    ]


def test_only_a_share_is_bounded() -> None:
    (share,), (loss,) = (board(runs(measure)).standings for measure in ("accuracy", "sft/nll"))
    assert share.value.mean == loss.value.mean
    assert share.value.high == 1.0 < loss.value.high
    assert share.curve[-1][1].high <= 1.0 < loss.curve[-1][1].high


def test_without_several_replies_there_is_no_column_for_passes() -> None:
    """Also in a pipe, whose width has room for every column."""
    told = io.StringIO()
    rows = [
        replace(row, spent=asdict(Spent(steps=9, seconds=1.0)), right=(1, 1, 0, 1), replies=1)
        for row in runs("accuracy")
    ]
    show(board(rows), Console(file=told, width=PIPE_WIDTH))
    assert "95% interval" in told.getvalue() and "pass@" not in told.getvalue()


def test_the_chart_of_the_leaderboard_says_what_it_shows() -> None:
    """Title, names and values of the rows, and where the runs started."""
    rows = [replace(row, spent={"steps": 9.0}, right=(1, 1, 0, 1), replies=1) for row in runs("accuracy")]
    found = plot(ranks(rows, ["sort"]), TOKENS)
    assert "Held-out accuracy after 1k tokens, mean of 1 tasks; the dashed line is the start" in found
    assert ">one<" in found and "75%" in found and 'class="rule"' in found
