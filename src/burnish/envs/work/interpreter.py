"""`interpreter`: questions that a few lines of Python answer, in an interpreter that remembers earlier lines."""

from __future__ import annotations

import random
from dataclasses import dataclass

from burnish.envs.python_tools import Interpreter
from burnish.envs.work.answered import Answered
from burnish.envs.work.family import WorkFamily


@dataclass(frozen=True)
class Sum:
    """What is asked, the lines that an expert runs, the right answer, and the values of the variable `data`."""

    asked: str
    lines: tuple[str, ...]
    right: str
    data: tuple[int, ...] = ()


class Computing(Answered):
    """An action is Python code, whose output is shown, or the line `answer: ...`. `data` is defined where it is named.

    What an earlier action defined is there; what a fork defines is its own.
    """

    position: Sum

    def question(self) -> str:
        return self.position.asked

    def looks(self) -> tuple[str, ...]:
        return self.position.lines

    def right(self) -> str:
        return self.position.right

    def opening(self) -> str:
        self.python = Interpreter(f"data = {list(self.position.data)}" if self.position.data else "")
        return super().opening()

    def look(self, said: str) -> str:
        return self.python.python(said).strip()


class Computation(WorkFamily):
    """Level 1: one line of arithmetic. Level 2: a sum over numbers that are given. Level 3: two steps over a list that
    only the interpreter has.
    """

    name = "interpreter"
    summary = "questions that Python answers: run code in the sandbox, then answer (several turns)"
    game = Computing

    def draw(self, dice: random.Random) -> Sum:
        if self.level == 1:
            a, b, c = dice.randrange(12, 99), dice.randrange(12, 99), dice.randrange(2, 99)
            line = f"{a}*{b}+{c}"
            return Sum(f"What is {line}?", (line,), str(a * b + c))
        if self.level == 2:
            given, k = [dice.randrange(2, 60) for _ in range(6)], dice.randrange(2, 5)
            asked = f"Add the squares of those of {' '.join(map(str, given))} that {k} divides."
            line = f"sum(x*x for x in {given} if x % {k} == 0)"
            return Sum(asked, (line,), str(sum(x * x for x in given if x % k == 0)))
        data = tuple(dice.randrange(0, 1000) for _ in range(40))
        mean = sum(data) / len(data)
        asked = "data is a list of numbers. How many of them are larger than their mean?"
        return Sum(
            asked, ("m = sum(data) / len(data)", "sum(x > m for x in data)"), str(sum(x > mean for x in data)), data
        )
