"""`code`: write an expression, or a small Python function, which is run in the code sandbox."""

from __future__ import annotations

import random
from typing import Any, ClassVar

from burnish.core.seeds import key_of, rng
from burnish.core.splits import check_level, in_split
from burnish.core.task import Task, Verdict
from burnish.sandbox.code.limits import SECONDS
from burnish.tasks.code_options import check_code_options
from burnish.tasks.countdown import Countdown
from burnish.tasks.functions import Function, list_function, number_function
from burnish.verifiers.code.canary import contradicting
from burnish.verifiers.code.grader import Problem
from burnish.verifiers.code.tests import read_tests
from burnish.verifiers.code.verifier import CodeVerifier

_EXPRESSIONS = {1: 1, 2: 3}  # level -> level of countdown
_DRAWS = {3: number_function, 4: list_function}


class Code:
    """Levels 1 and 2: an expression of given numbers with a given value; 3 and 4: a function of a number, of a list.

    The embedded model `tiny` can write expressions; functions need a model that knows Python.

    canary       the share of training problems whose tests contradict each other, so that no program can pass them
    unsafe_code  run programs even where the machine cannot isolate them
    """

    name: ClassVar[str] = "code"
    summary: ClassVar[str] = "write an expression or a small Python function, which is run and tested"
    gives: ClassVar[frozenset[str]] = frozenset({"demo", "mistake"})
    levels: ClassVar[tuple[int, ...]] = (1, 2, 3, 4)

    def __init__(self, level: int = 1, seed: int = 0, canary: float = 0.0, unsafe_code: bool = False) -> None:
        check_code_options(canary, unsafe_code)
        self.level, self.seed = check_level(self.name, level, self.levels), seed
        self.canary, self.unsafe_code = canary, unsafe_code
        self._countdown = Countdown(level=_EXPRESSIONS.get(self.level, 1))

    def size(self, split: str) -> int | None:
        return None

    def task(self, split: str, index: int) -> Task:
        attempt = 0
        while True:
            dice = rng(self.seed, self.name, self.level, index, attempt)
            found = self._expression(dice) if self.level in _EXPRESSIONS else self._function(dice)
            if in_split(split, found.key):
                break
            attempt += 1
        given = dict(found.given)
        if split == "train" and self.canary and key_of("canary", found.key) % 10_000 < self.canary * 10_000:
            given["canary"] = True
        return Task("question", found.prompt, given, found.key)

    def _expression(self, dice: random.Random) -> Task:
        problem = self._countdown.draw(dice)
        numbers, target, _ = problem
        key = f"{self.name} {self._countdown.identity(problem)}"
        given = {
            "numbers": list(numbers),
            "value": target,
            "demo": self._countdown.solve(problem, rng(key, "demo")),
            "mistake": self._countdown.mistake(problem, rng(key, "mistake")),
        }
        return Task("question", ({"role": "user", "content": self._countdown.ask(problem)},), given, key)

    def _function(self, dice: random.Random) -> Task:
        found = _DRAWS[self.level](dice)
        wrong = _other(found, _DRAWS[self.level], dice)
        given = {
            "cases": [list(case) for case in found.cases],
            "demo": f"```python\n{found.program}```",
            "mistake": f"```python\n{wrong.program}```",
        }
        asked = f"Write a Python function f(x) that returns {found.words}. Reply with the code."
        return Task("question", ({"role": "user", "content": asked},), given, f"{self.name} {found.words}")

    def scorer(self) -> dict[str, Any]:
        """The spec of the verifier (verifiers/code/verifier.py)."""
        return {"kind": "code", "isolated": not self.unsafe_code}

    def facts(self, task: Task) -> Problem:
        """The tests of a task."""
        tests = read_tests(task.given, "", task.key)
        assert tests is not None
        canary = bool(task.given.get("canary"))
        return Problem(contradicting(tests) if canary else tests, canary)

    def verify(self, task: Task, reply: str) -> Verdict:
        return CodeVerifier().judge(self.scorer(), [self.facts(task)], [reply], SECONDS)[0]


def _other(right: Function, draw: Any, dice: random.Random) -> Function:
    """A function that differs from the right one in at least one test."""
    while True:
        wrong: Function = draw(dice)
        if wrong.body != right.body and any(type(x) is not type(y) or x != y for x, y in _values(right, wrong)):
            return wrong


def _values(right: Function, wrong: Function) -> list[tuple[object, object]]:
    """The values of both for the inputs that both have."""
    known = {repr(x): y for x, y in wrong.cases}
    return [(y, known[repr(x)]) for x, y in right.cases if repr(x) in known]
