"""`Family`: base class of the built-in single-turn tasks, with splits, levels, the answer format, demos and mistakes.

A family defines how to draw a problem, ask it, write a correct solution, write a wrong one, and judge an answer. From
these, `Family` makes a `Source`: an endless, indexed, seeded set of tasks. Train and held-out splits never share a
problem, because the split is a property of the problem itself, not of how it was drawn.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from burnish.core.seeds import rng
from burnish.core.splits import check_level, in_split
from burnish.core.task import Task, Verdict
from burnish.verifiers.answer_line import answer_of

Problem = Any  # a tuple of plain values; each family documents its own
Content = str | list[dict[str, str]]  # of a message: text, or parts (core/messages.py)


class Family(ABC):
    """A built-in single-turn source. Subclasses implement only the abstract methods.

    level  difficulty: 1 is the easiest, 2 the default, 4 the hardest
    seed   changes the order of tasks; the split of a problem never changes
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    levels: ClassVar[tuple[int, ...]] = (1, 2, 3, 4)
    gives: ClassVar[frozenset[str]] = frozenset({"answer", "demo", "mistake"})

    def __init__(self, level: int = 2, seed: int = 0) -> None:
        self.level = check_level(self.name, level, self.levels)
        self.seed = seed

    @abstractmethod
    def draw(self, dice: random.Random) -> Problem:
        """One problem of this level."""

    @abstractmethod
    def identity(self, problem: Problem) -> str:
        """The canonical form: equivalent problems have the same identity."""

    @abstractmethod
    def ask(self, problem: Problem) -> Content:
        """The user's message."""

    @abstractmethod
    def answer(self, problem: Problem) -> str:
        """A correct answer, as written after `answer:`."""

    @abstractmethod
    def solve(self, problem: Problem, dice: random.Random) -> str:
        """A correct worked reply; `dice` chooses among ways to write it."""

    @abstractmethod
    def blunder(self, problem: Problem, dice: random.Random) -> str:
        """A worked reply with a mistake; it may still be correct by chance, then `mistake` draws again."""

    @abstractmethod
    def judge(self, problem: Problem, said: str) -> str:
        """Why the answer `said` is wrong, or the empty string if it is correct. Must not raise on any text."""

    def size(self, split: str) -> int | None:
        return None

    def problem(self, split: str, index: int) -> Problem:
        """The problem at an index: drawn until one belongs to the split."""
        attempt = 0
        while True:
            problem = self.draw(rng(self.seed, self.name, self.level, index, attempt))
            if in_split(split, f"{self.name} {self.identity(problem)}"):
                return problem
            attempt += 1

    def mistake(self, problem: Problem, dice: random.Random) -> str:
        """A plausible reply that the verifier rejects."""
        for _ in range(1000):
            reply = self.blunder(problem, dice)
            if self.judge(problem, answer_of(reply) or ""):
                return reply
        raise AssertionError(f"{self.name}: no blunder on {problem!r} is wrong")

    def task(self, split: str, index: int) -> Task:
        problem = self.problem(split, index)
        key = f"{self.name} {self.identity(problem)}"
        given = {
            "answer": self.answer(problem),
            "demo": self.solve(problem, rng(key, "demo")),
            "mistake": self.mistake(problem, rng(key, "mistake")),
            "problem": problem,
        }
        return Task("question", ({"role": "user", "content": self.ask(problem)},), given, key)

    def scorer(self) -> dict[str, object]:
        """The spec from which the verifier process rebuilds this verifier."""
        return {"kind": "builtin", "source": type(self).__module__, "name": type(self).__name__, "level": self.level}

    def facts(self, task: Task) -> Problem:
        """The data of a task that `verdict` needs."""
        return task.given["problem"]

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdict(self.facts(task), reply)

    def verdict(self, problem: Problem, reply: str) -> Verdict:
        """Whether a reply solves the problem. Takes time linear in the characters read (at most LONGEST_REPLY)."""
        said = answer_of(reply)
        if said is None:
            return Verdict(0.0, False, "no line 'answer: ...' in the reply")
        wrong = self.judge(problem, said)
        return Verdict(0.0, False, wrong) if wrong else Verdict(1.0, True)
