"""A small fixed set of tasks, again and again."""

from __future__ import annotations

from burnish import randomness
from burnish.nouns import Task
from burnish.parts import Draw, names
from burnish.step import Step
from burnish.tasks.source import Source


def few(source: Source, size: int) -> Draw:
    """The run's `prompts` next tasks of the same `size` training tasks, in turn; no task twice in one batch."""
    if size < 1:
        raise ValueError(f"a set of {size} tasks is empty; take at least 1")

    def call(step: Step) -> list[Task]:
        clock, held = step.clock, source.size("train")
        order = list(range(size)) if held is None else randomness.shuffled(held, clock.seed, "few")[:size]
        first = 0 if held is not None else clock.seed << 32
        n = min(step.settings.prompts, len(order))
        places = [order[(clock.step * step.settings.prompts + i) % len(order)] for i in range(n)]
        return [source.task("train", first + place) for place in places]

    return Draw(name=f"few({size})", call=call, writes=frozenset({"task:prompt"}) | names("given", source.gives))
