"""Replies under control words that say how much of each quality is wanted: "novelty +1, feasibility -1"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from burnish.core import randomness
from burnish.core.parts import Rollout
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.rollout.conditioned import conditioned

STEER = "steer"  # note: name -> level


def control_words(levels: dict[str, float]) -> str:
    """ "novelty +1, feasibility -0.5"; a level of 0 is not mentioned, so all 0 are no words at all."""
    return ", ".join(f"{name} {level:+g}" for name, level in levels.items() if level)


def steered(rollout: Rollout, names: Sequence[str], levels: Sequence[float]) -> Rollout:
    """The rollout of each task under control words with a random level for each name, the same for the whole group.

    The levels are noted on the traces; the groups keep the tasks as they were drawn. Levels [0] are the rollout itself.
    """

    def drawn(task: Task, step: Step) -> dict[str, float]:
        dice = randomness.rng(step.clock.seed, "steered", step.clock.step, step.clock.tick, task.key)
        return {name: dice.choice(list(levels)) for name in names}

    def call(tasks: list[Task], step: Step) -> list[Group]:
        wanted = [drawn(task, step) for task in tasks]
        asked = [conditioned(task, control_words(own)) for task, own in zip(tasks, wanted, strict=True)]
        groups = [replace(g, task=task) for g, task in zip(rollout.call(asked, step), tasks, strict=True)]
        for group, own in zip(groups, wanted, strict=True):
            for trace in group.traces:
                trace.note[STEER] = own
        return groups

    name = f"{rollout.name} steered by {', '.join(names)}"
    return replace(rollout, name=name, call=call, asks=None, writes=rollout.writes | {"tag:steered"})
