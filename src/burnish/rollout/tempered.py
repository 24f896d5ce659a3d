"""Samples at a temperature that a meter asks for."""

from __future__ import annotations

import math

from burnish.core.parts import Rollout, names, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task, Turn
from burnish.rollout.sample import continue_from


class EntropyMeter:
    """-mean log pi over the tokens of the last update; 0 before the first."""

    def __init__(self, target: float, hot: float, cool: float, name: str = "entropy") -> None:
        self.name, self.target, self.hot, self.cool = name, target, hot, cool
        self.entropy = 0.0

    def low(self) -> bool:
        """Whether the policy is less undecided than it should be."""
        return self.entropy <= self.target

    def temperature(self) -> float:
        return self.hot if self.low() else self.cool

    def state_dict(self) -> dict:
        return {"entropy": self.entropy}

    def load_state_dict(self, state: dict) -> None:
        self.entropy = float(state["entropy"])


@supplies("tag:tempered")
def tempered(n: int, meter: EntropyMeter, *, share: float, who: str = "policy") -> Rollout:
    """n replies, tagged "tempered", to each of the first ceil(share x N) of the N tasks, at the meter's temperature.

    The log-probs recorded with them are those at that temperature.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"the share of tempered tasks is {share}; it must lie between 0 and 1")

    def call(tasks: list[Task], step: Step) -> list[Group]:
        some = tasks[: math.ceil(share * len(tasks))]
        prompts = [Turn(step.models[who].chat.prompt(task), "task") for task in some]
        starts = [(task, (prompt,), i) for task, prompt in zip(some, prompts, strict=True) for i in range(n)]
        temperature = meter.temperature()
        step.notes.add("temperature", temperature)
        traces = continue_from(starts, who, step, tag="tempered", temperature=temperature) if starts else []
        return [Group(task, traces[k * n : (k + 1) * n]) for k, task in enumerate(tasks)]

    return Rollout(
        name=f"tempered({n})",
        call=call,
        reads=frozenset({"task:prompt", f"model:{who}.generate", f"store:{meter.name}"}),
        writes=names("tokens", ("task", who)) | names("mu", who) | names("tag", "tempered"),
        state=(meter,),
    )
