"""Replies under a user's weights for several attributes, written into the prompt (DPA, arXiv 2402.18571)."""

from __future__ import annotations

import math
from dataclasses import replace

from burnish.core import randomness
from burnish.core.parts import Rollout, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.rollout.conditioned import conditioned
from burnish.rollout.sample import sample

WORDS = "You are a helpful assistant. Your response should maximize weighted rating = helpfulness*{0} + verbosity*{1}."


def direction(step: Step, task: Task, degrees: float) -> tuple[float, float]:
    """v = (cos t, sin t), t uniform within +- degrees, of this task in this step."""
    dice = randomness.rng(step.clock.seed, "direction", step.clock.step, step.clock.tick, task.key)
    angle = math.radians(dice.uniform(-degrees, degrees))
    return math.cos(angle), math.sin(angle)


def written(v: tuple[float, float]) -> str:
    """The weights as integers of a hundred, as the prompt states them."""
    return WORDS.format(*(round(100 * x) for x in v))


@supplies("tag:directed")
def directed(n: int, degrees: float, *, temperature: float = 1.0) -> Rollout:
    """n replies per task, sampled after a direction of its own, which each trace has in its note (unrounded)."""
    inner = sample(n, temperature=temperature)

    def call(tasks: list[Task], step: Step) -> list[Group]:
        directions = [direction(step, task, degrees) for task in tasks]
        told = [conditioned(task, written(v)) for task, v in zip(tasks, directions, strict=True)]
        groups = []
        for group, task, v in zip(inner.call(told, step), tasks, directions, strict=True):
            for trace in group.traces:
                trace.note["direction"] = v
                trace.tags |= {"directed"}
            groups.append(replace(group, task=task))
        return groups

    return Rollout(
        name=f"directed({n})", call=call, reads=inner.reads, writes=inner.writes | frozenset({"tag:directed"})
    )
