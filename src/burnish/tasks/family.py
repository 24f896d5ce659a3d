"""What the built-in single-turn tasks share: splits, levels, the answer form, and the writing of demos and mistakes.

A family says how to draw a problem, ask it, solve it in writing, get it wrong in writing, and judge an answer. From
these, `Family` makes a `Source`: an endless, indexed, seeded set of tasks whose train and held-out parts never share
a problem, because membership is a property of the problem itself and not of how it was drawn.
"""

from __future__ import annotations

import random
import re
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from burnish.nouns import Task, Verdict
from burnish.randomness import key_of, rng
from burnish.tasks.source import SPLITS

HELDOUT_EVERY = 8  # one key in eight is held out
LONGEST_REPLY = 4000  # characters a verifier reads: a reply beyond this is cut, never parsed
_ANSWER = re.compile(r"answer\s*:", re.IGNORECASE)

Problem = Any  # a tuple of plain values; each family documents its own


def spoken(answer: str, *steps: str) -> str:
    """A reply in the house form: one working step a line, then the line `answer: ...`."""
    return "\n".join([*steps, f"answer: {answer}"])


def answer_of(reply: str) -> str | None:
    """What follows the last `answer:` on its line, without spaces around it or a full stop after; None if absent."""
    places = list(_ANSWER.finditer(reply[-LONGEST_REPLY:]))
    if not places:
        return None
    lines = reply[-LONGEST_REPLY:][places[-1].end() :].strip().splitlines()
    return lines[0].strip().rstrip(".").strip() if lines else ""


def in_split(split: str, key: str) -> bool:
    """Whether the problem with this key belongs to the split: one key in eight is held out, by its own hash."""
    if split not in SPLITS:
        raise ValueError(f"split {split!r} is unknown; the splits are {', '.join(SPLITS)}")
    return (key_of(key) % HELDOUT_EVERY == 0) == (split == "heldout")


def check_level(name: str, level: int, levels: tuple[int, ...]) -> int:
    """The level, or a ValueError that lists the ones there are."""
    if level not in levels:
        raise ValueError(f"task {name!r} has no level {level!r}; choose one of {', '.join(map(str, levels))}")
    return level


class Family(ABC):
    """A single-turn built-in source. Subclasses fill in the abstract methods and nothing else.

    level  how hard: 1 is easiest, 2 the default, 4 the hardest
    seed   another seed is another order of tasks; the split of a problem never changes
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
        """Its canonical content: two problems that are really the same have the same identity."""

    @abstractmethod
    def ask(self, problem: Problem) -> str:
        """The user's message."""

    @abstractmethod
    def answer(self, problem: Problem) -> str:
        """A right answer, as it stands after `answer:`."""

    @abstractmethod
    def solve(self, problem: Problem, dice: random.Random) -> str:
        """A right worked reply; the dice choose among ways to write it."""

    @abstractmethod
    def blunder(self, problem: Problem, dice: random.Random) -> str:
        """A worked reply with a slip in it; it may by luck still be right, `mistake` draws again then."""

    @abstractmethod
    def judge(self, problem: Problem, said: str) -> str:
        """Why the answer `said` is wrong, or the empty string when it is right. Must never raise on odd text."""

    def size(self, split: str) -> int | None:
        return None

    def problem(self, split: str, index: int) -> Problem:
        """The problem at an index: drawn again until one falls in the split."""
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

    def verify(self, task: Task, reply: str) -> Verdict:
        said = answer_of(reply)
        if said is None:
            return Verdict(0.0, False, "no line 'answer: ...' in the reply")
        wrong = self.judge(task.given["problem"], said)
        return Verdict(0.0, False, wrong) if wrong else Verdict(1.0, True)
