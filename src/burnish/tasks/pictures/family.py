"""`PictureFamily`: base class of the built-in tasks whose question stands beside drawn pictures."""

from __future__ import annotations

from abc import abstractmethod

from burnish.core.task import Verdict
from burnish.media.drawing import Pixels
from burnish.media.looked import content
from burnish.tasks.family import Content, Family, Problem
from burnish.verifiers.answer_line import answer_of


class PictureFamily(Family):
    """A family whose prompt is pictures and then a question."""

    @abstractmethod
    def pictures(self, problem: Problem) -> list[Pixels]:
        """What is shown, in order."""

    @abstractmethod
    def question(self, problem: Problem) -> str:
        """What is asked about the pictures."""

    def credit(self, problem: Problem, said: str) -> float:
        """The score of an answer, from 0 to 1. Must not raise on any text."""
        return 0.0 if self.judge(problem, said) else 1.0

    def ask(self, problem: Problem) -> Content:
        return content(self.pictures(problem), self.question(problem))

    def verdict(self, problem: Problem, reply: str) -> Verdict:
        said = answer_of(reply)
        if said is None:
            return Verdict(0.0, False, "no line 'answer: ...' in the reply")
        wrong = self.judge(problem, said)
        return Verdict(self.credit(problem, said), not wrong, wrong)
