"""Scores of replies by comparing them with the reference answer of their task, in place of right or wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task
from burnish.score.judge import reply_text
from burnish.verifiers.answer_line import answer_of


@dataclass(frozen=True)
class Said:
    """A reply: its text, the answer in it ("" where there is none), what the verifier says, and the time."""

    task: Task
    text: str
    answer: str
    right: bool
    score: float
    clock: Clock

    @property
    def reference(self) -> str:
        """The reference answer of the task; "" where it has none."""
        return str(self.task.given.get("answer") or "")


@supplies("score:compared")
def compared(
    name: str, judge: Callable[[Said], float | None], *, author: str = "policy", reader: str = "policy"
) -> Part:
    """scores["compared"] = judge(reply), after a verifier; None stands for the verifier's score."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat = step.models[reader].chat
        for group in groups:
            for trace in group.traces:
                text = reply_text(trace, chat)
                right = bool(trace.scores.get("correct", 0.0))
                said = Said(group.task, text, answer_of(text) or "", right, trace.scores["reward"], step.clock)
                value = judge(said)
                trace.scores["compared"] = said.score if value is None else value
        return groups

    return Part(
        name=name,
        call=call,
        reads=frozenset({"score:reward", f"tokens:{author}"}),
        writes=frozenset({"score:compared"}),
    )
