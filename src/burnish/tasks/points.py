"""`points`: reach a target with cards, whose faces count by a rule that the prompt states.

After the card game of arXiv 2501.17161: the same problem under two readings of the face cards shows whether a model has
learned to use the rule or the numbers of one reading.
"""

from __future__ import annotations

import random

from burnish.tasks.countdown import Countdown, Round
from burnish.tasks.family import Family, Problem

FACES = {"J": 11, "Q": 12, "K": 13}
RULES = {10: "JQK=10", 13: "J=11 Q=12 K=13"}  # the rule -> how the prompt states it
_MANY = {1: 2, 2: 3, 3: 4}  # cards by level


class Points(Family):
    """Two, three or four cards by level, at least one of them a face. rule: 10 (all faces are ten) or 13.

    A problem is (values, target, an expression, cards, rule).
    """

    name = "points"
    summary = "reach a target with cards whose faces count by a stated rule"
    levels = (1, 2, 3)

    def __init__(self, level: int = 2, seed: int = 0, rule: int = 10) -> None:
        super().__init__(level, seed)
        if rule not in RULES:
            raise ValueError(f"task 'points' has no rule={rule}; choose one of {', '.join(map(str, RULES))}")
        self.rule = rule
        self._chains = Countdown(level=2)

    def draw(self, dice: random.Random) -> Problem:
        cards = [dice.choice(list(FACES)), *(dice.choice([*map(str, range(1, 11)), *FACES]) for _ in range(self._more))]
        dice.shuffle(cards)
        values = tuple(self._value(card) for card in cards)
        _, target, expression = self._round(values, dice)
        return values, target, expression, tuple(cards), self.rule

    @property
    def _more(self) -> int:
        return _MANY[self.level] - 1

    def _value(self, card: str) -> int:
        return (10 if self.rule == 10 else FACES[card]) if card in FACES else int(card)

    def _round(self, values: tuple[int, ...], dice: random.Random) -> Round:
        expression, _, target = self._chains.chain(values, dice)
        return values, target, expression

    def identity(self, problem: Problem) -> str:
        """Both readings of the same cards are one problem, so what one holds out the other does not train on."""
        return " ".join(sorted(problem[3]))

    def ask(self, problem: Problem) -> str:
        return f"{RULES[problem[4]]}: Make {problem[1]} from {' '.join(problem[3])}"

    def answer(self, problem: Problem) -> str:
        return str(problem[2])

    def solve(self, problem: Problem, dice: random.Random) -> str:
        return self._chains.reply(problem[:3], dice, [], right=True)

    def blunder(self, problem: Problem, dice: random.Random) -> str:
        return self._chains.reply(problem[:3], dice, [], right=False)

    def judge(self, problem: Problem, said: str) -> str:
        return self._chains.judge((tuple(problem[0]), problem[1], problem[2]), said)
