"""`add`: addition and subtraction, worked column by column from the ones."""

from __future__ import annotations

import random

from burnish.tasks.family import Family
from burnish.verifiers.answer_line import format_reply

Sum = tuple[int, str, int]  # first number, "+" or "-", second number (never larger than the first under "-")
# A column and a kind of mistake: "carry" forgets the carry, "one" is off by one, "turn" subtracts top from bottom.
Slip = tuple[int, str]


def _columns(a: int, op: str, b: int, slip: Slip | None, dice: random.Random) -> tuple[list[str], str]:
    """The working lines and the result as digits, with one mistake in one column if `slip` is given."""
    tops, bottoms = [int(d) for d in str(a)[::-1]], [int(d) for d in str(b)[::-1]]
    steps, digits, carry = [], "", 0
    for column, top in enumerate(tops):
        bottom = bottoms[column] if column < len(bottoms) else 0
        kind = slip[1] if slip and slip[0] == column else ""
        carried = 0 if kind == "carry" else carry
        if op == "-" and kind == "turn" and bottom > top:
            top, bottom = bottom, top
        if op == "-" and top - bottom - carried < 0:
            top, carry = top + 10, 1
        elif op == "-":
            carry = 0
        total = top + bottom + carried if op == "+" else top - bottom - carried
        if kind == "one":
            total = max(0, total + dice.choice((-1, 1)))
        if op == "+":
            carry = total // 10
        steps.append(f"{top}{op}{bottom}{f'{op}{carried}' if carried else ''}={total}")
        last = column == len(tops) - 1
        digits = (str(total) if last else str(total % 10)) + digits
    return steps, str(int(digits))


class Add(Family):
    """Two numbers of `level` digits each."""

    name = "add"
    summary = "multi-digit addition and subtraction, worked by columns"

    def draw(self, dice: random.Random) -> Sum:
        low, high = (10 ** (self.level - 1), 10**self.level - 1)
        a, b, op = dice.randint(low, high), dice.randint(low, high), dice.choice("+-")
        return (max(a, b), op, min(a, b)) if op == "-" else (a, op, b)

    def identity(self, problem: Sum) -> str:
        a, op, b = problem
        return f"{max(a, b)}{op}{min(a, b)}"

    def ask(self, problem: Sum) -> str:
        return "{}{}{}=?".format(*problem)

    def answer(self, problem: Sum) -> str:
        a, op, b = problem
        return str(a + b if op == "+" else a - b)

    def solve(self, problem: Sum, dice: random.Random) -> str:
        steps, result = _columns(*problem, None, dice)
        return format_reply(result, *steps)

    def blunder(self, problem: Sum, dice: random.Random) -> str:
        kind = dice.choice(("carry", "carry", "one", "turn", "copy"))
        if kind != "copy":
            steps, result = _columns(*problem, (dice.randrange(len(str(problem[0]))), kind), dice)
            return format_reply(result, *steps)
        steps, result = _columns(*problem, None, dice)
        at = dice.randrange(len(result))
        return format_reply(result[:at] + str(dice.randrange(10)) + result[at + 1 :], *steps)

    def judge(self, problem: Sum, said: str) -> str:
        right = self.answer(problem)
        return "" if said == right else f"the answer is {right}, not {said[:40]!r}"
