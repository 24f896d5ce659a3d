"""`burnish show` in a narrow terminal: names stay whole, descriptions wrap and lose nothing."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.table import Table

from burnish.learn.learn import plan_of
from burnish.methods.table import find
from burnish.report.show import built, models, pipeline, terms


def printed(table: Table, width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["grpo", "ppo", "archer"])
def test_names_stay_whole_in_a_narrow_terminal(name: str) -> None:
    method = built(find(name))
    for table in (*map(pipeline, method.phases), *(terms(plan_of(phase)) for phase in method.phases), models(method)):
        names = [str(cell) for cell in table.columns[0].cells]
        narrow = printed(table, 48)
        starts = {line.split("  ")[0].strip() for line in narrow.splitlines()}
        assert set(filter(None, names)) <= starts, narrow
        letters = ["".join(text.split()) for text in (printed(table, 400), narrow)]
        assert sorted(letters[0]) == sorted(letters[1]), "what does not fit is folded, and not cut off"
