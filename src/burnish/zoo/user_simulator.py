"""Simulating User Agents for Embodied Conversational-AI (arXiv 2410.23535).

Measures of a simulated user: when it speaks, and with which dialogue act.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from burnish import draw, learn, rollout
from burnish.core.parts import Part
from burnish.core.schedules import every
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.method import Method, Option, Phase, roles
from burnish.methods import opt, register
from burnish.papers import Paper
from burnish.score.judge import reply_text
from burnish.tasks.user import read_said

USER_SIMULATOR = Paper("embodied-user-simulator", "2410.23535", "Simulating User Agents for Embodied Conversational-AI")

METRICS = (
    ("speak_f1", "What was sampled", "of a simulated user on held-out tasks: F1 of when it speaks", "up"),
    (
        "act_f1",
        "What was sampled",
        "of a simulated user on held-out tasks: F1 of the dialogue act where the human speaks",
        "up",
    ),
)


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


@register(
    USER_SIMULATOR,
    family="agents",
    summary="SFT of a simulated user that observes or speaks, measured by F1 of when and what.",
    when="You have logged dialogues of users with an agent, and want a user for multi-turn training.",
    example="burnish train user_simulator --task user:1 --lr 2e-3 --max-new-tokens 24",
    trial={"task": "user", "measure_every": 1},
)
def user_simulator(
    task: draw.Source,
    *,
    measure_every: Annotated[int, Option("Steps between measurements on held-out tasks.", at_least=1)] = 10,
    updates: opt.Updates = 1,
) -> Method:
    """A user agent for embodied dialogues: from the goal and the history, OBSERVE or SPEAK(act): words.

    L = -(1 / N) sum over the N tokens of what the human did of log pi
    speak_f1 = 2 both / (model speaks + human speaks);  act_f1, where the human speaks: 2 same act / (model speaks +
    human speaks): of greedy replies to held-out tasks, every measure_every steps

    Without the measurements it is SFT. Rows have the goal and history as prompt and `demo` as OBSERVE or SPEAK(act):
    words. The paper's data (TEACh) are not part of this; `user` generates dialogues. Reconstructed from the abstract,
    which names the two decisions and the measures. Left out: zero-shot and few-shot prompts.
    """
    asked = draw.prompts(task, "demo")
    assert asked.heldout is not None
    main = Phase(
        draw=draw.demos(task),
        rollout=rollout.demonstrated(),
        learn=learn.Learn(learn.imitate(on="demo"), updates=updates),
    )
    measure = Phase(
        name="measure",
        times=every(measure_every, measure_every - 1),
        draw=replace(asked, name="measured", call=asked.heldout, heldout=None, ahead=False),
        rollout=rollout.greedy(),
        credit=speaking(),
        learn=learn.Learn(),
    )
    return Method(models=roles(), phases=(main, measure))
