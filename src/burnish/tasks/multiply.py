"""`multiply`: a long number times one digit, worked digit by digit with carries."""

from __future__ import annotations

import random

from burnish.tasks.family import Family
from burnish.verifiers.answer_line import format_reply

Product = tuple[int, int]  # the long number, the digit
_RANGES = {1: (10, 49, 5), 2: (10, 99, 9), 3: (100, 999, 9), 4: (1000, 9999, 9)}  # lowest, highest, largest digit


def _rows(a: int, b: int, at: int, kind: str, dice: random.Random) -> tuple[list[str], str]:
    """The working lines and the result, with the mistake `kind` at digit `at` ("" for none).

    "carry" forgets the carry, "one" is off by one, "table" takes the neighbour in the times table, "whole" writes both
    digits of a product instead of carrying.
    """
    steps, digits, carry = [], "", 0
    figures = [int(d) for d in str(a)[::-1]]
    for column, figure in enumerate(figures):
        here = kind if column == at else ""
        carried = 0 if here == "carry" else carry
        product = figure * b + carried
        if here == "table":
            product = max(0, product + dice.choice((-b, b)))
        if here == "one":
            product = max(0, product + dice.choice((-1, 1)))
        steps.append(f"{figure}*{b}{f'+{carried}' if carried else ''}={product}")
        last = column == len(figures) - 1
        digits = (str(product) if last or here == "whole" else str(product % 10)) + digits
        carry = product // 10
    return steps, digits


class Multiply(Family):
    """Two digits times one digit at level 2; level 1 keeps the numbers small, 3 and 4 have three and four digits."""

    name = "multiply"
    summary = "a long number times one digit, worked with carries"

    def draw(self, dice: random.Random) -> Product:
        low, high, digit = _RANGES[self.level]
        return dice.randint(low, high), dice.randint(2, digit)

    def identity(self, problem: Product) -> str:
        return "{}*{}".format(*problem)

    def ask(self, problem: Product) -> str:
        return "{}*{}=?".format(*problem)

    def answer(self, problem: Product) -> str:
        return str(problem[0] * problem[1])

    def solve(self, problem: Product, dice: random.Random) -> str:
        steps, result = _rows(*problem, 0, "", dice)
        return format_reply(result, *steps)

    def blunder(self, problem: Product, dice: random.Random) -> str:
        kind = dice.choice(("carry", "carry", "one", "table", "whole", "copy"))
        steps, result = _rows(*problem, dice.randrange(len(str(problem[0]))), kind, dice)
        if kind == "copy":
            at = dice.randrange(len(result))
            result = result[:at] + str(dice.randrange(10)) + result[at + 1 :]
        return format_reply(result, *steps)

    def judge(self, problem: Product, said: str) -> str:
        right = self.answer(problem)
        return "" if said == right else f"the answer is {right}, not {said[:40]!r}"
