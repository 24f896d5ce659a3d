"""What verifiers read: the columns of a row, JSON in a reply, and the limits on both."""

from __future__ import annotations

import json
import math
import re

from burnish.core.task import Verdict
from burnish.verifiers.checks import BadRow
from burnish.verifiers.final_answer import final_answer, spoken
from burnish.verifiers.table import Row

LONGEST = 200_000  # characters; a verifier that reads the whole of a longer reply gives it 0
_FENCE = re.compile(r"```[a-zA-Z0-9_+-]*[ \t]*\n(.*?)```", re.DOTALL)


def wrong(reason: str, score: float = 0.0) -> Verdict:
    """The verdict of a reply that is not right, with the reason in at most 300 characters."""
    return Verdict(score, False, reason if len(reason) <= 300 else f"{reason[:297]}...")


def too_long(text: str, most: int = LONGEST) -> str:
    """The reason why a text is not read; nothing where it may be."""
    return f"the reply has {len(text):,} characters; more than {most:,} are not read" if len(text) > most else ""


def answers_of(row: Row) -> list[str]:
    """The right answers of a row, as texts: its `answer`, or each entry where that is a list of accepted ones."""
    given = row["answer"]
    answers = [str(one) for one in given] if isinstance(given, list | tuple) else [str(given)]
    if not answers or not any(text.strip() for text in answers):
        raise BadRow("a row has an empty 'answer'; fill it in or remove the row")
    return answers


def text_answer(reply: str) -> str:
    """The answer of a reply: what is marked as such (####, \\boxed{}, `answer:`), else all after its thinking."""
    text = spoken(reply)
    marked = "####" in text or "\\boxed" in text or re.search(r"answer\s*:", text[-LONGEST:], re.IGNORECASE)
    return final_answer(text) if marked else text


def fenced(text: str) -> list[str]:
    """The contents of the ``` blocks of a text."""
    return _FENCE.findall(text)


def read_json(text: str) -> object:
    """A JSON value; raises ValueError for what is not strictly JSON.

    NaN, infinities (1e999 too), a key that occurs twice, and nesting that exhausts the stack are refused.
    """
    try:
        return json.loads(text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_without_duplicates)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def json_in(text: str) -> object:
    """The JSON value that a text is, or that its only ``` block holds; raises ValueError if there is none."""
    blocks = fenced(text)
    if len(blocks) > 1:
        raise ValueError(f"it has {len(blocks)} fenced blocks; one is expected")
    return read_json((blocks[0] if blocks else text).strip())


def column_json(row: Row, name: str) -> object:
    """A column of the row, parsed where it is JSON text."""
    value = row[name]
    if not isinstance(value, str):
        return value
    try:
        return read_json(value)
    except ValueError as error:
        raise BadRow(f"the column {name!r} of a row is not JSON: {error}; it begins {value[:60]!r}") from None


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text[:20]} is not a finite number")
    return value


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key occurs twice in an object")
    return values
