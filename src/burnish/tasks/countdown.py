"""`countdown`: reach a target with the given numbers, each used exactly once. Any correct expression counts."""

from __future__ import annotations

import random
from collections.abc import Sequence

from burnish.tasks.arithmetic import read
from burnish.tasks.family import Family
from burnish.verifiers.answer_line import format_reply

Round = tuple[tuple[int, ...], int, str]  # the numbers as shown, the target, one expression that reaches it
_SHAPES = {1: (2, "+-", 20), 2: (3, "+-", 20), 3: (3, "+-*", 12), 4: (4, "+-*", 12)}  # how many, signs, largest
_HIGHEST = 99


def _apply(a: int, sign: str, b: int) -> int:
    return a + b if sign == "+" else a - b if sign == "-" else a * b


def _write(numbers: Sequence[int], signs: Sequence[str]) -> tuple[str, list[str], int]:
    """A left-to-right chain of operations: its expression, its working (one equation per sign), its value."""
    expression, working, value = str(numbers[0]), [], numbers[0]
    for place, (sign, number) in enumerate(zip(signs, numbers[1:], strict=True)):
        if sign == "*" and any(s != "*" for s in signs[:place]) and not expression.endswith(")"):
            expression = f"({expression})"
        result = _apply(value, sign, number)
        working.append(f"{value}{sign}{number}={result}")
        expression, value = f"{expression}{sign}{number}", result
    return expression, working, value


class Countdown(Family):
    """Two numbers at level 1, three at 2 (+ and -) and 3 (with *), four at 4."""

    name = "countdown"
    summary = "reach a target with given numbers, each used once"

    def chain(self, numbers: Sequence[int], dice: random.Random) -> tuple[str, list[str], int]:
        """A random chain of the numbers whose intermediate results stay between 0 and 99."""
        signs = _SHAPES[self.level][1]
        while True:
            order = dice.sample(list(numbers), len(numbers))
            chosen = [dice.choice(signs) for _ in order[1:]]
            expression, working, value = _write(order, chosen)
            if all(0 <= int(step.split("=")[1]) <= _HIGHEST for step in working):
                return expression, working, value

    def draw(self, dice: random.Random) -> Round:
        many, _, largest = _SHAPES[self.level]
        numbers = tuple(dice.randint(1, largest) for _ in range(many))
        expression, _, target = self.chain(numbers, dice)
        return numbers, target, expression

    def identity(self, problem: Round) -> str:
        numbers, target, _ = problem
        return f"{target} of {' '.join(map(str, sorted(numbers)))}"

    def ask(self, problem: Round) -> str:
        numbers, target, _ = problem
        return f"Make {target} from {' '.join(map(str, numbers))}"

    def answer(self, problem: Round) -> str:
        return problem[2]

    def _tries(self, problem: Round, dice: random.Random) -> list[str]:
        """No working, or one failed attempt, marked as such."""
        numbers, target, _ = problem
        _, working, value = self.chain(numbers, dice)
        return [f"{','.join(working)} no"] if value != target and dice.random() < 0.4 else []

    def _success(self, problem: Round, dice: random.Random) -> tuple[str, list[str]]:
        """A chain that reaches the target, by random search; it ends because the target is reachable."""
        numbers, target, _ = problem
        while True:
            expression, working, value = self.chain(numbers, dice)
            if value == target:
                return expression, working

    def solve(self, problem: Round, dice: random.Random) -> str:
        tries = self._tries(problem, dice)
        expression, working = self._success(problem, dice)
        return format_reply(expression, *tries, f"{','.join(working)} yes")

    def blunder(self, problem: Round, dice: random.Random) -> str:
        """A wrong result taken for the target, or a correct chain copied wrongly."""
        numbers, target, _ = problem
        tries = self._tries(problem, dice)
        kind = dice.choice(("believe", "believe", "accept", "sign", "number"))
        if kind in ("believe", "accept"):
            expression, working, _ = self.chain(numbers, dice)
            if kind == "believe":
                working[-1] = f"{working[-1].split('=')[0]}={target}"
            return format_reply(expression, *tries, f"{','.join(working)} yes")
        expression, working = self._success(problem, dice)
        if kind == "sign":
            at = dice.choice([i for i, letter in enumerate(expression) if letter in "+-*"])
            expression = expression[:at] + dice.choice("+-") + expression[at + 1 :]
        else:
            wrong = dice.choice(numbers)
            expression = expression.replace(str(dice.choice(numbers)), str(wrong), 1)
        return format_reply(expression, *tries, f"{','.join(working)} yes")

    def misses(self, problem: Round, dice: random.Random, most: int) -> list[str]:
        """The tries of a search by chance before it hits, at most so many, each marked as one that misses."""
        numbers, target, _ = problem
        tries: list[str] = []
        while len(tries) < most:
            _, working, value = self.chain(numbers, dice)
            if value == target:
                break
            tries.append(f"{','.join(working)} no")
        return tries

    def reply(self, problem: Round, dice: random.Random, tries: Sequence[str], *, right: bool) -> str:
        """A reply that ends these tries with a chain which reaches the target, or with one that only claims to."""
        if right:
            expression, working = self._success(problem, dice)
            return format_reply(expression, *tries, f"{','.join(working)} yes")
        numbers, target, _ = problem
        value = target
        while value == target:
            expression, working, value = self.chain(numbers, dice)
        working[-1] = f"{working[-1].split('=')[0]}={target}"
        return format_reply(expression, *tries, f"{','.join(working)} yes")

    def judge(self, problem: Round, said: str) -> str:
        numbers, target, _ = problem
        try:
            value, used = read(said.split("=")[0])
        except ValueError as problem_with_it:
            return str(problem_with_it)
        if sorted(used) != sorted(numbers):
            return f"it uses {used}, but each of {list(numbers)} must be used exactly once"
        return "" if value == target else f"it makes {value}, not {target}"
