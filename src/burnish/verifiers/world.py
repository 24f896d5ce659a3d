"""Predictions of a world model: the next state of a text game, the lines of a page (RLVR-World)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from burnish import papers
from burnish.core.option import Option
from burnish.core.task import Verdict
from burnish.verifiers.checks import BadRow
from burnish.verifiers.final_answer import spoken
from burnish.verifiers.read import column_json, json_in, too_long, wrong
from burnish.verifiers.similarity import bag_f1
from burnish.verifiers.table import Check, Row, verifier

DEEPEST = 40
MOST_FACTS = 20_000
Fact = tuple[tuple[str, ...], object]


class TooMuch(ValueError):
    """A state that is too large or too deep to compare."""


def facts(value: object, path: tuple[str, ...] = ()) -> Iterator[Fact]:
    """(path, value) of every leaf of a JSON value; an empty object or list is a leaf."""
    if len(path) > DEEPEST:
        raise TooMuch(f"it is nested more than {DEEPEST} deep")
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from facts(item, (*path, str(key)))
    elif isinstance(value, list) and value:
        for i, item in enumerate(value):
            yield from facts(item, (*path, str(i)))
    else:
        leaf = type(value).__name__ if isinstance(value, list | Mapping) else value
        yield path, (type(leaf).__name__ if isinstance(leaf, bool | str) else "", leaf)  # true is not 1


def changes(before: object, after: object) -> set[Fact]:
    """The facts of `after` that are not in `before`, and those of `before` that are gone (marked as gone)."""
    old, new = ({*_limited(facts(state))} for state in (before, after))
    places = {path for path, _ in new}
    return (new - old) | {(path, ("gone",)) for path, _ in old if path not in places}


def _limited(items: Iterator[Fact]) -> Iterator[Fact]:
    for i, fact in enumerate(items):
        if i >= MOST_FACTS:
            raise TooMuch(f"it has more than {MOST_FACTS:,} values")
        yield fact


@verifier(
    papers.RLVR_WORLD,
    needs=("answer",),
    kinds=("world",),
    summary="Whether a predicted state is the next state, with F1 of the changes as partial score (RLVR-World).",
    when="Rows have the next state as `answer` (JSON), and the present one as `state`.",
)
def world_state(
    *,
    partial: Annotated[
        float, Option("The weight of the F1 of the changes where not all are right.", at_least=0, at_most=1)
    ] = 0.0,
) -> Check:
    """1 where the predicted state is the right one, else partial x F1 of the changed properties (arXiv 2505.13934).

    A state is JSON; its properties are the leaves by their paths, the score of a game among them. Changes are the
    properties that differ from the column `state` ({} without one): said and right changes give P, R and F1. Nothing
    changed on either side is 1. partial=0 is the binary reward. JSON that cannot be read: 0. The paper's world models
    of video, whose reward compares pictures, are left out.
    """

    def check(row: Row, reply: str) -> Verdict:
        before = column_json(row, "state") if row.get("state") is not None else {}
        try:
            right = changes(before, column_json(row, "answer"))
        except TooMuch as error:
            raise BadRow(f"the state of a row: {error}") from None
        if reason := too_long(reply):
            return wrong(reason)
        try:
            changed = changes(before, json_in(spoken(reply)))
        except ValueError as error:
            return wrong(f"the state cannot be read: {error}")
        if changed == right:
            return Verdict(1.0, True)
        f1 = bag_f1([*changed], [*right])
        return wrong(f"F1 of the changes is {f1:.3f}", partial * f1)

    return check


@verifier(
    papers.RLVR_WORLD,
    needs=("answer",),
    kinds=("world",),
    summary="F1 of the lines of the reply that equal lines of the answer (RLVR-World, web pages).",
)
def line_f1(
    *, minimum: Annotated[float, Option("The F1 from which a reply counts as correct.", above=0, at_most=1)] = 1.0
) -> Check:
    """2 P R / (P + R) over the multisets of non-empty lines, without spaces at their ends; both empty: 1."""

    def check(row: Row, reply: str) -> Verdict:
        if reason := too_long(reply):
            return wrong(reason)
        score = bag_f1(_lines(spoken(reply)), _lines(str(row["answer"])))
        return Verdict(score, True) if score >= minimum else wrong(f"F1 of the lines is {score:.3f}", score)

    return check


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]
