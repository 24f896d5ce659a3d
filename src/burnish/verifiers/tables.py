"""Answers that are lists: multisets of short answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import Annotated

from burnish.core.option import Option
from burnish.core.task import Verdict
from burnish.verifiers.final_answer import final_answer, number, spoken
from burnish.verifiers.read import json_in, read_json, too_long, wrong
from burnish.verifiers.similarity import squad_normalised
from burnish.verifiers.table import Check, Row, verifier

Tolerance = Annotated[float, Option("The largest difference of numbers that are the same.", at_least=0)]
MOST_ANSWERS = 1000


def entries(value: object) -> list[str]:
    """The short answers in a value: a list, JSON of one, {"answer": ...}, or one text with | between them."""
    if isinstance(value, str):
        text = value.strip()
        if text[:1] in "[{":
            try:
                return entries(read_json(text))
            except ValueError:
                return [text]
        return [part.strip() for part in text.split("|") if part.strip()]
    if isinstance(value, Mapping):
        return entries(value["answer"]) if "answer" in value else [str(value)]
    if isinstance(value, list | tuple):
        return [str(one).strip() for one in value if not isinstance(one, list | Mapping)]
    return [str(value)]


def same_multiset(answers: list[str], right: list[str], tolerance: float) -> bool:
    """Whether two lists hold the same answers, in any order, each as often: numbers within the tolerance."""
    if len(answers) != len(right) or len(answers) > MOST_ANSWERS:
        return False
    texts = [Counter(squad_normalised(one) for one in side if number(one) is None) for side in (answers, right)]
    if texts[0] != texts[1]:
        return False
    numbers = [sorted(value for one in side if (value := number(one)) is not None) for side in (answers, right)]
    return all(abs(a - b) <= Fraction(tolerance) for a, b in zip(*numbers, strict=True))


@verifier(
    needs=("answer",),
    kinds=("table", "list"),
    summary="1 where the short answers of a reply are the right ones, as a multiset.",
)
def answer_list(*, tolerance: Tolerance = 0.01) -> Check:
    """1[said = right as multisets]; numbers are equal within the tolerance, texts after SQuAD's normalisation.

    `answer` is a list, JSON of a list, or a text with | between the answers; so is the answer of the reply (the whole
    after the thinking, its only ``` block, or what is marked as the answer). Thousands separators, $ and % are dropped.
    """

    def check(row: Row, reply: str) -> Verdict:
        right = entries(row["answer"])
        if reason := too_long(reply):
            return wrong(reason)
        answers = _said(reply)
        if right and same_multiset(answers, right, tolerance):
            return Verdict(1.0, True)
        return wrong(f"the answers are {right[:5]!r:.60}, not {answers[:5]!r:.60}")

    return check


def _said(reply: str) -> list[str]:
    text = spoken(reply)
    try:
        return entries(json_in(text))
    except ValueError:
        return entries(final_answer(text) if text else "")
