"""`reverse`: say a string of letters backwards."""

from __future__ import annotations

import random
import string

from burnish.tasks.family import Family
from burnish.tasks.slips import slip
from burnish.verifiers.answer_line import format_reply

Letters = tuple[str, ...]
_COUNT = {1: 4, 2: 6, 3: 9, 4: 13}


class Reverse(Family):
    """4, 6, 9 or 13 letters by level; letters may repeat."""

    name = "reverse"
    summary = "say a string of letters backwards"

    def draw(self, dice: random.Random) -> Letters:
        return tuple(dice.choice(string.ascii_lowercase) for _ in range(_COUNT[self.level]))

    def identity(self, problem: Letters) -> str:
        return " ".join(problem)

    def ask(self, problem: Letters) -> str:
        return f"Reverse: {' '.join(problem)}"

    def answer(self, problem: Letters) -> str:
        return " ".join(reversed(problem))

    def _say(self, problem: Letters, letters: list[str], dice: random.Random) -> str:
        """The letters alone, or after naming the two ends."""
        return format_reply(" ".join(letters), *([f"ends {problem[-1]} {problem[0]}"] if dice.random() < 0.3 else []))

    def solve(self, problem: Letters, dice: random.Random) -> str:
        return self._say(problem, list(reversed(problem)), dice)

    def blunder(self, problem: Letters, dice: random.Random) -> str:
        return self._say(problem, slip(list(reversed(problem)), string.ascii_lowercase, dice), dice)

    def judge(self, problem: Letters, said: str) -> str:
        return "" if said.split() == list(reversed(problem)) else f"backwards it is {self.answer(problem)!r}"
