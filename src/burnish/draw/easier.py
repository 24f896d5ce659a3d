"""Demonstrations from easy to hard."""

from __future__ import annotations

from dataclasses import replace

from burnish.core.parts import Draw
from burnish.core.step import Step
from burnish.core.types import Task


def easier_first(inner: Draw, stages: int, steps: int, *, column: str = "demo") -> Draw:
    """Of `stages` times as many tasks, those of one stage by the length of their demonstration: first the shortest.

    steps: over how many the stages are spread; later steps stay in the last stage.
    """

    def call(step: Step) -> list[Task]:
        prompts = step.settings.prompts
        wide = replace(step, settings=replace(step.settings, prompts=stages * prompts))
        found = sorted(inner.call(wide), key=lambda task: len(str(task.given[column])))
        stage = min(stages - 1, step.clock.step * stages // max(1, steps))
        size = -(-len(found) // stages)
        return found[stage * size : (stage + 1) * size] or found[-size:]

    return replace(inner, name=f"{inner.name}, easier first", call=call)
