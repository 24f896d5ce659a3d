"""Codes as text: `<c3>` is the colour 3, `<n40>` the note 40, `<s7>` a sound of speech."""

from __future__ import annotations

import re
from collections.abc import Iterable

MANY = {"c": 16, "n": 48, "s": 24}
TOKENS = tuple(f"<{kind}{number}>" for kind, many in MANY.items() for number in range(many))
LONGEST = 256
_ONE = re.compile(r"<([cns])(\d{1,2})>")


def written(kind: str, numbers: Iterable[int]) -> str:
    """Codes of one kind, with nothing between them."""
    return "".join(f"<{kind}{number}>" for number in numbers)


def read(kind: str, text: str) -> list[int] | None:
    """The numbers of codes of one kind; None if the text is anything else."""
    found = _ONE.findall(text[: 6 * LONGEST])
    numbers = [int(number) for letter, number in found if letter == kind and int(number) < MANY[kind]]
    return numbers if numbers and "".join(f"<{kind}{number}>" for number in numbers) == text else None
