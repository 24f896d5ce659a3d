"""Small functions in words: what they are asked for by, a program that solves them, and the values of their tests."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Value = Any


@dataclass(frozen=True)
class Step:
    """One operation on x with a number k: in words, as an expression of Python, and as a function."""

    words: str
    code: str
    apply: Callable[[Any, int], Any]


ON_NUMBERS = (
    Step("{x} plus {k}", "{x} + {k}", lambda x, k: x + k),
    Step("{x} minus {k}", "{x} - {k}", lambda x, k: x - k),
    Step("{x} times {k}", "{x} * {k}", lambda x, k: x * k),
    Step("the square of {x}, plus {k}", "{x} ** 2 + {k}", lambda x, k: x**2 + k),
    Step("the remainder of {x} divided by {k}", "{x} % {k}", lambda x, k: x % k),
    Step("the larger of {x} and {k}", "max({x}, {k})", max),
    Step("the smaller of {x} and {k}", "min({x}, {k})", min),
    Step("the distance between {x} and {k}", "abs({x} - {k})", lambda x, k: abs(x - k)),
    Step("whether {x} is larger than {k}", "{x} > {k}", lambda x, k: x > k),
)
ON_LISTS = (
    Step(
        "the numbers of {x} that are larger than {k}",
        "[n for n in {x} if n > {k}]",
        lambda x, k: [n for n in x if n > k],
    ),
    Step("the numbers of {x}, each plus {k}", "[n + {k} for n in {x}]", lambda x, k: [n + k for n in x]),
    Step("the numbers of {x}, each times {k}", "[n * {k} for n in {x}]", lambda x, k: [n * k for n in x]),
    Step("the first {k} numbers of {x}", "{x}[:{k}]", lambda x, k: x[:k]),
    Step("{x} without its first {k} numbers", "{x}[{k}:]", lambda x, k: x[k:]),
    Step(
        "the numbers of {x} that {k} divides",
        "[n for n in {x} if n % {k} == 0]",
        lambda x, k: [n for n in x if n % k == 0],
    ),
    Step("{x} in reverse order, {k} times in a row", "{x}[::-1] * {k}", lambda x, k: x[::-1] * k),
    Step("{x} in increasing order, with {k} at the end", "sorted({x}) + [{k}]", lambda x, k: [*sorted(x), k]),
)
ENDS = (
    Step("the sum of", "sum({x})", lambda x, k: sum(x)),
    Step("the number of items in", "len({x})", lambda x, k: len(x)),
    Step("the list of", "list({x})", lambda x, k: list(x)),
    Step("whether there is anything in", "bool({x})", lambda x, k: bool(x)),
)


@dataclass(frozen=True)
class Function:
    """A function f(x): in words, as a program, and as its values for the inputs of its tests."""

    words: str
    body: str
    cases: tuple[tuple[Any, Any], ...]

    @property
    def program(self) -> str:
        return f"def f(x):\n    return {self.body}\n"


def number_function(dice: random.Random, k: int | None = None, step: Step | None = None) -> Function:
    """A function of a number, of one operation."""
    step = step or dice.choice(ON_NUMBERS)
    k = k if k is not None else dice.randint(2, 9)
    inputs = sorted({0, 1, k, k + 1, *(dice.randint(-20, 20) for _ in range(6))})
    cases = tuple((x, step.apply(x, k)) for x in inputs)
    return Function(step.words.format(x="x", k=k), step.code.format(x="x", k=k), cases)


def list_function(
    dice: random.Random, k: int | None = None, step: Step | None = None, end: Step | None = None
) -> Function:
    """A function of a list of numbers, of two operations."""
    step, end = step or dice.choice(ON_LISTS), end or dice.choice(ENDS)
    k = k if k is not None else dice.randint(2, 5)
    inputs = [[], [k], *([dice.randint(-9, 9) for _ in range(dice.randint(2, 7))] for _ in range(5))]
    cases = tuple((x, end.apply(step.apply(list(x), k), k)) for x in inputs)
    words = f"{end.words} {step.words.format(x='the list x', k=k)}"
    return Function(words, end.code.format(x=step.code.format(x="x", k=k)), cases)
