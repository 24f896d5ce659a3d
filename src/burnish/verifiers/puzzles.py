"""Verifiers of puzzles: zebra puzzles with credit for cells, and grids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from burnish import papers
from burnish.core.task import Verdict
from burnish.verifiers.checks import BadRow
from burnish.verifiers.final_answer import spoken
from burnish.verifiers.read import column_json, json_in, too_long, wrong
from burnish.verifiers.table import Check, Row, verifier


def cells(value: Any) -> dict[tuple[str, str], str]:
    """(row, column) -> cell of a table: {"header": [...], "rows": [[...]]} or {house: {attribute: value}}."""
    if isinstance(value, Mapping) and isinstance(value.get("header"), list) and isinstance(value.get("rows"), list):
        names = [_plain(name) for name in value["header"]]
        rows = value["rows"]
        if not all(isinstance(row, list) and len(row) == len(names) for row in rows):
            raise ValueError("a row has another length than the header")
        return {
            (str(i), name): _plain(cell) for i, row in enumerate(rows) for name, cell in zip(names, row, strict=True)
        }
    if isinstance(value, Mapping) and value and all(isinstance(row, Mapping) for row in value.values()):
        return {(_plain(house), _plain(k)): _plain(cell) for house, row in value.items() for k, cell in row.items()}
    raise ValueError('a table is {"header": [...], "rows": [[...]]} or {house: {attribute: value}}')


def _plain(value: Any) -> str:
    return " ".join(str(value).casefold().split())


@verifier(
    papers.GURU,
    needs=("answer",),
    kinds=("zebra",),
    summary="The share of the cells of a zebra puzzle that are right (Guru).",
)
def zebra() -> Check:
    """Right cells / all cells; `answer` and reply are JSON: {"header", "rows"} or {house: {attribute: value}}.

    A cell that the reply adds to the table makes it unreadable: 0, as does JSON that cannot be read.
    """

    def check(row: Row, reply: str) -> Verdict:
        try:
            right = cells(column_json(row, "answer"))
        except ValueError as error:
            raise BadRow(f"the answer of a row: {error}") from None
        if reason := too_long(reply):
            return wrong(reason)
        try:
            said = cells(json_in(spoken(reply)))
        except ValueError as error:
            return wrong(f"the table cannot be read: {error}")
        if extra := said.keys() - right.keys():
            return wrong(f"there is no cell {min(extra)!r:.60}")
        share = sum(said.get(place) == cell for place, cell in right.items()) / len(right)
        return Verdict(1.0, True) if share == 1 else wrong(f"{share:.3f} of the cells are right", share)

    return check


@verifier(
    papers.GURU,
    needs=("answer",),
    kinds=("grid", "simulation"),
    summary="1 where the reply is the same JSON value: a grid (ARC), the output of a program, a list (Guru).",
)
def json_equal() -> Check:
    """1[said = right] as JSON values: objects without order, lists with it, 1 and 1.0 equal, true and 1 not.

    `answer` is a value or its JSON text; a text that is no JSON is compared as a string.
    """

    def check(row: Row, reply: str) -> Verdict:
        right = row["answer"]
        if isinstance(right, str):
            try:
                right = json_in(right)
            except ValueError:
                right = right.strip()
        if reason := too_long(reply):
            return wrong(reason)
        text = spoken(reply)
        try:
            said = json_in(text)
        except ValueError as error:
            if isinstance(right, str) and text == right:
                return Verdict(1.0, True)
            return wrong(f"it is not JSON: {error}")
        return Verdict(1.0, True) if same_json(said, right) else wrong("the value is another one")

    return check


def same_json(said: Any, right: Any) -> bool:
    """Whether two JSON values are equal, by a stack of our own, so that their depth does not matter."""
    pending = [(said, right)]
    while pending:
        a, b = pending.pop()
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            if a.keys() != b.keys():
                return False
            pending += [(a[key], b[key]) for key in a]
        elif isinstance(a, list | tuple) and isinstance(b, list | tuple):
            if len(a) != len(b):
                return False
            pending += zip(a, b, strict=True)
        elif isinstance(a, bool) != isinstance(b, bool) or a != b:
            return False
    return True
