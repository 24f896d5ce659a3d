"""Where an interval of the leaderboard may lie: a share between 0 and 1, anything else wherever its runs put it."""

from __future__ import annotations

from dataclasses import replace

from burnish.compare.board import board
from burnish.compare.budget import Budget
from burnish.compare.job import Mark, RunResult
from burnish.compare.leaderboard_page import plot, ranks

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


def test_the_chart_of_the_leaderboard_says_what_it_shows() -> None:
    """Title, names and values of the rows, and where the runs started."""
    rows = [replace(row, spent={"steps": 9.0}, right=(1, 1, 0, 1), replies=1) for row in runs("accuracy")]
    found = plot(ranks(rows, ["sort"]), TOKENS)
    assert "Held-out accuracy after 1k tokens, mean of 1 tasks; the dashed line is the start" in found
    assert ">one<" in found and "75%" in found and 'class="rule"' in found
