"""A curriculum of distractors: how many passages besides the right ones a question is asked with (RAG-RL)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from burnish.core import randomness
from burnish.core.parts import Draw
from burnish.core.step import Step
from burnish.core.types import Task
from burnish.draw.tasks import prompts
from burnish.tasks.passages import with_distractors
from burnish.tasks.source import Source

Levels = Callable[[float, int], int]  # (share of the run that is over, in (0, 1]; the hardest level) -> level

LEVELS: dict[str, Levels] = {
    "max": lambda share, hardest: hardest,
    "linear": lambda share, hardest: max(1, math.ceil(hardest * share - 1e-9)),
    "min_max": lambda share, hardest: 1 if share <= 0.5 else hardest,
}
ORDERS = (*LEVELS, "linear_shuffled", "min_max_shuffled")


def distractors_at(level: int, gold: int, most: int) -> int:
    """d = min(max(level + 2 - gold, 0), most): the easiest level has one distractor for two right passages."""
    return min(max(level + 2 - gold, 0), most)


def distracted(source: Source, order: str) -> Draw:
    """The next tasks, each asked with its right passages and as many distractors as its level has, shuffled.

    order: how the level goes from 1 to K = passages - 2 over the run: "max" always K, "linear" ceil(K i / n), "min_max"
    1 in the first half and K in the second; "..._shuffled" the same levels in a random order over the run
    """
    plain = prompts(source, "question", "passages", "gold")
    rule, shuffled = order.removesuffix("_shuffled"), order.endswith("_shuffled")

    def call(step: Step) -> list[Task]:
        return [_at(task, i, step) for i, task in enumerate(plain.call(step))]

    def _at(task: Task, i: int, step: Step) -> Task:
        clock = step.clock
        share = (clock.step + 1) / max(1, clock.of)
        if shuffled:
            share = 1 - randomness.rng(clock.seed, "distractors", clock.step, i).random()
        gold, passages = int(task.given["gold"]), len(task.given["passages"])
        level = LEVELS[rule](min(1.0, share), max(1, passages - 2))
        many = distractors_at(level, gold, passages - gold)
        step.notes.add("distractors", many)
        found = with_distractors(task, many)
        kept = {key: value for key, value in found.given.items() if key not in ("demo", "mistake")}  # other numbers
        return replace(found, given=kept)

    return replace(plain, call=call, ahead=False)
