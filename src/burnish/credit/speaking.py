"""Measures of a simulated user: when it speaks, and with which dialogue act."""

from __future__ import annotations

from dataclasses import dataclass

from burnish.core.parts import Part
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.score.judge import reply_text
from burnish.tasks.user import read_said


@dataclass
class Counts:
    """How often a simulated user and a human spoke.

    both: both spoke; model, human: one spoke, whatever the other did; same: both, with the same act
    """

    both: int = 0
    model: int = 0
    human: int = 0
    same: int = 0

    def add(self, said: str | None, right: str | None) -> None:
        """One step: what each said, as text; what cannot be read counts as speech without an act."""
        mine, theirs = _act(said), _act(right)
        self.model += mine != ""
        self.human += theirs != ""
        self.both += mine != "" and theirs != ""
        self.same += theirs != "" and mine == theirs

    @property
    def speak_f1(self) -> tuple[float, float]:
        """F1 of "speak now" as a fraction: 2 both / (model + human)."""
        return 2.0 * self.both, float(self.model + self.human)

    @property
    def act_f1(self) -> tuple[float, float]:
        """F1 of the act where the human spoke: 2 same / (the model spoke there + the human spoke)."""
        return 2.0 * self.same, float(self.both + self.human)


def _act(text: str | None) -> str:
    """The act; "" to observe, "?" for what is neither."""
    said = read_said(text or "")
    return "?" if said is None else said[0]


def speaking(*, reader: str = "policy") -> Part:
    """Note the metrics speak_f1 and act_f1 of sampled replies, compared with each task's "demo"."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        chat, counts = step.models[reader].chat, Counts()
        for group in groups:
            for trace in group.traces:
                counts.add(reply_text(trace, chat), str(group.task.given["demo"]))
        for name, (above, below) in (("speak_f1", counts.speak_f1), ("act_f1", counts.act_f1)):
            if below:
                step.notes.add(name, above, below)
        return groups

    return Part(name="speaking", call=call, reads=frozenset({"tokens:policy", "given:demo"}))
