"""The interface of a judge: questions in, answers out, in order; a failure is an answer with a reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from burnish.core.roles import Role
from burnish.core.step import Step
from burnish.judges.question import Question


@dataclass(frozen=True)
class Answer:
    """What a judge said; or why it said nothing (no answer in time, question too long for its context)."""

    text: str
    why: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.why)


@dataclass(frozen=True)
class Choice:
    """How likely a judge finds the first of two words: log P(first) - log P(second); or why that is unknown."""

    logit: float
    why: str = ""

    @property
    def failed(self) -> bool:
        return bool(self.why)


class Judge(Protocol):
    """Answers questions.

    name    what it is, in messages and keys: a model's name, or an address with a model
    models  the roles that a scorer must add to the run for it
    reads   the capabilities that its part reads
    """

    @property
    def name(self) -> str: ...

    @property
    def models(self) -> Mapping[str, Role]: ...

    @property
    def reads(self) -> frozenset[str]: ...

    def ask(self, questions: Sequence[Question], step: Step, samples: int = 1) -> list[list[Answer]]:
        """`samples` answers to each question. The same question gets the same answers, however often it is asked."""
        ...

    def choose(self, questions: Sequence[Question], words: tuple[str, str], step: Step) -> list[Choice]:
        """For each question, how much likelier an answer begins with the first word than with the second."""
        ...
