"""`tutor`: what a tutor does next about a pupil's step of a sum: confirm, hint, ask. Telling the answer is wrong.

A script in place of the tutoring dialogues of arXiv 2402.05000: the state of the pupil decides the right action.
"""

from __future__ import annotations

import random

from burnish.tasks.family import Family, Problem
from burnish.verifiers.answer_line import format_reply

STATES = ("right", "carry", "digit", "silent", "done", "other")
_SUMS = {1: 9, 2: 99}


class Tutor(Family):
    """A sum of two numbers, with one or two digits by level, and what the pupil wrote about its last column.

    A problem is (a, b, state, what the pupil wrote). The script:

        the column is right            confirm the column
        its carry is forgotten         hint carry
        its digit is wrong             hint the column
        nothing is written             ask for the column
        the whole sum is right         confirm the sum
        another column was worked      ask for this column
    """

    name = "tutor"
    summary = "say what a tutor does about a pupil's step of a sum"
    levels = (1, 2)

    def draw(self, dice: random.Random) -> Problem:
        highest = _SUMS[self.level]
        a, b = dice.randint(1, highest), dice.randint(1, highest)
        x, y = a % 10, b % 10
        states = [state for state in STATES if self.level == 2 or state != "other"]
        state = dice.choice([one for one in states if one != "carry" or x + y > 9])
        return a, b, state, self._written(a, b, state, dice)

    def _written(self, a: int, b: int, state: str, dice: random.Random) -> str:
        x, y = a % 10, b % 10
        if state == "right":
            return f"{x}+{y}={x + y}"
        if state == "carry":
            return f"{x}+{y}={(x + y) % 10}"
        if state == "digit":
            wrong = x + y + dice.choice((-2, -1, 1, 2))
            return f"{x}+{y}={max(0, wrong) if wrong != (x + y) % 10 else x + y + 3}"
        if state == "done":
            return f"{a}+{b}={a + b}"
        if state == "other":
            return f"{a // 10}+{b // 10}={a // 10 + b // 10}"
        return "..."

    def identity(self, problem: Problem) -> str:
        return " ".join(map(str, problem))

    def ask(self, problem: Problem) -> str:
        a, b, _, written = problem
        return f"{a}+{b}=? pupil: {written}"

    def answer(self, problem: Problem) -> str:
        a, b, state, _ = problem
        column = f"{a % 10}+{b % 10}"
        return {
            "right": f"confirm {column}",
            "carry": "hint carry",
            "digit": f"hint {column}",
            "silent": f"ask {column}",
            "done": f"confirm {a}+{b}",
            "other": f"ask {column}",
        }[str(state)]

    def solve(self, problem: Problem, dice: random.Random) -> str:
        return format_reply(self.answer(problem))

    def blunder(self, problem: Problem, dice: random.Random) -> str:
        """Another action, another column, or the answer itself."""
        a, b, _, _ = problem
        column = f"{a % 10}+{b % 10}"
        told = (f"confirm {column}", f"hint {column}", f"ask {column}", "hint carry", f"tell {a + b}")
        return format_reply(dice.choice(told))

    def judge(self, problem: Problem, said: str) -> str:
        right = self.answer(problem)
        return "" if " ".join(said.split()) == right else f"the tutor's script says {right!r}"
