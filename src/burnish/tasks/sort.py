"""`sort`: put letters or two-digit numbers in order, up or down."""

from __future__ import annotations

import random
import string

from burnish.tasks.family import Family
from burnish.tasks.slips import slip
from burnish.verifiers.answer_line import format_reply

Items = tuple[str, tuple[str, ...]]  # "up" or "down", the items
_COUNT = {1: 4, 2: 6, 3: 8, 4: 11}
_LETTERS = list(string.ascii_lowercase)
_NUMBERS = [str(number) for number in range(10, 100)]


class Sort(Family):
    """4, 6, 8 or 11 items by level, all different."""

    name = "sort"
    summary = "sort letters or numbers, up or down"

    def draw(self, dice: random.Random) -> Items:
        pool = dice.choice((_LETTERS, _NUMBERS))
        return dice.choice(("up", "down")), tuple(dice.sample(pool, _COUNT[self.level]))

    def identity(self, problem: Items) -> str:
        return f"{problem[0]} {' '.join(sorted(problem[1]))}"

    def ask(self, problem: Items) -> str:
        return f"Sort {problem[0]}: {' '.join(problem[1])}"

    def _right(self, problem: Items) -> list[str]:
        return sorted(problem[1], reverse=problem[0] == "down")

    def answer(self, problem: Items) -> str:
        return " ".join(self._right(problem))

    def _say(self, problem: Items, items: list[str], dice: random.Random) -> str:
        """The list alone, or after naming its two ends."""
        right = self._right(problem)
        return format_reply(" ".join(items), *([f"ends {right[0]} {right[-1]}"] if dice.random() < 0.3 else []))

    def solve(self, problem: Items, dice: random.Random) -> str:
        return self._say(problem, self._right(problem), dice)

    def blunder(self, problem: Items, dice: random.Random) -> str:
        pool = _LETTERS if problem[1][0].isalpha() else _NUMBERS
        return self._say(problem, slip(self._right(problem), pool, dice), dice)

    def judge(self, problem: Items, said: str) -> str:
        right = self._right(problem)
        if said.split() == right:
            return ""
        if sorted(said.split()) != sorted(right):
            return "the items are not those that were given"
        return f"the items are not in order {problem[0]}"
