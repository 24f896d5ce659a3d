"""Draw from a small fixed set of tasks."""

from __future__ import annotations

from burnish.core import randomness
from burnish.core.parts import Draw, names
from burnish.core.step import Step
from burnish.core.types import Task
from burnish.draw.tasks import tasks_of
from burnish.tasks.source import Source


def few(source: Source, size: int) -> Draw:
    """The next `prompts` tasks of a fixed set of `size` training tasks, in rotation; no task twice in one batch."""
    if size < 1:
        raise ValueError(f"a set of {size} tasks is empty; take at least 1")

    def call(step: Step) -> list[Task]:
        clock, size_of_source = step.clock, source.size("train")
        order = (
            list(range(size))
            if size_of_source is None
            else randomness.shuffled(size_of_source, clock.seed, "few")[:size]
        )
        first = 0 if size_of_source is not None else clock.seed << 32
        n = min(step.settings.prompts, len(order))
        places = [order[(clock.step * step.settings.prompts + i) % len(order)] for i in range(n)]
        return tasks_of(source, "train", [first + place for place in places], step)

    return Draw(name=f"few({size})", call=call, writes=frozenset({"task:prompt"}) | names("given", source.gives))
