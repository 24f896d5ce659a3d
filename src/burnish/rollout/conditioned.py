"""The same task under a condition: a few words before the question that say what sort of reply is meant."""

from __future__ import annotations

from dataclasses import replace

from burnish.core.messages import prepended
from burnish.core.parts import Rollout
from burnish.core.step import Step
from burnish.core.types import Group, Task
from burnish.rollout.starts import Start


def conditioned(task: Task, words: str) -> Task:
    """The task with the words before the last message of its prompt; no words, the task itself."""
    if not words:
        return task
    if isinstance(task.prompt, str):
        return replace(task, prompt=f"{words}\n{task.prompt}")
    *before, last = task.prompt
    return replace(task, prompt=(*before, prepended(last, f"{words}\n")))


def under(words: str, rollout: Rollout) -> Rollout:
    """The rollout of the same tasks under a condition; the groups keep the tasks as they were drawn."""

    def call(tasks: list[Task], step: Step) -> list[Group]:
        groups = rollout.call([conditioned(task, words) for task in tasks], step)
        return [replace(group, task=task) for group, task in zip(groups, tasks, strict=True)]

    def asks(tasks: list[Task], step: Step) -> list[list[Start]]:
        assert rollout.asks is not None
        return rollout.asks([conditioned(task, words) for task in tasks], step)

    if not words:
        return rollout
    return replace(rollout, name=f"{rollout.name} under {words!r}", call=call, asks=rollout.asks and asks)
