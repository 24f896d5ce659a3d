"""Parser of arithmetic expressions: whole numbers, + - * / and parentheses, evaluated exactly.

It does not use eval, because replies are untrusted text.
"""

from __future__ import annotations

import re
from fractions import Fraction

LONGEST = 80  # characters; also bounds the depth of nesting
_PIECE = re.compile(r"\s*(\d{1,9}|[-+*/()])")


def _pieces(text: str) -> list[str]:
    """The tokens of the text (numbers and signs); ValueError for anything else."""
    if len(text) > LONGEST:
        raise ValueError(f"the expression has {len(text)} characters; at most {LONGEST} are read")
    pieces, at = [], 0
    while at < len(text.rstrip()):
        match = _PIECE.match(text, at)
        if not match:
            raise ValueError(f"{text[at : at + 10]!r} is not arithmetic; use whole numbers, + - * / and parentheses")
        pieces.append(match.group(1))
        at = match.end()
    return pieces


class _Parser:
    """Recursive descent over the tokens: sums of products of atoms. Collects the numbers."""

    def __init__(self, pieces: list[str]) -> None:
        self.pieces, self.at = pieces, 0
        self.numbers: list[int] = []

    def peek(self) -> str:
        return self.pieces[self.at] if self.at < len(self.pieces) else ""

    def take(self) -> str:
        piece = self.peek()
        self.at += 1
        return piece

    def sum(self) -> Fraction:
        value = self.product()
        while self.peek() in ("+", "-"):
            value = value + self.product() if self.take() == "+" else value - self.product()
        return value

    def product(self) -> Fraction:
        value = self.atom()
        while self.peek() in ("*", "/"):
            if self.take() == "*":
                value *= self.atom()
            elif divisor := self.atom():
                value /= divisor
            else:
                raise ValueError("the expression divides by zero")
        return value

    def atom(self) -> Fraction:
        piece = self.take()
        if piece.isdigit():
            self.numbers.append(int(piece))
            return Fraction(int(piece))
        if piece == "(":
            value = self.sum()
            if self.take() != ")":
                raise ValueError("a parenthesis is not closed")
            return value
        raise ValueError(f"a number is missing before {piece!r}" if piece else "the expression ends too early")


def read(text: str) -> tuple[Fraction, list[int]]:
    """The value of an expression and the numbers in it, in order; ValueError for anything but arithmetic."""
    parser = _Parser(_pieces(text))
    value = parser.sum()
    if parser.peek():
        raise ValueError(f"{parser.peek()!r} is left over after the expression")
    return value, parser.numbers
