"""Prompts that a run makes of others: as tasks, and mixed into what another draw brings."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from burnish.core import randomness
from burnish.core.messages import text_of
from burnish.core.parts import Draw, Stateful
from burnish.core.step import Step
from burnish.core.task import MADE_FROM
from burnish.core.types import Group, Task
from burnish.tasks.mixture import FROM
from burnish.tasks.source import Source


def request_of(task: Task) -> str:
    """What a task asks: its prompt, or the text of the last message."""
    return task.prompt if isinstance(task.prompt, str) else text_of(task.prompt[-1])


def made_task(task: Task, text: str) -> Task:
    """A task that asks `text` in the place of the last message of another; nothing is known of its answer."""
    prompt: Any = text if isinstance(task.prompt, str) else (*task.prompt[:-1], {"role": "user", "content": text})
    given = {MADE_FROM: task.key, **{name: task.given[name] for name in (FROM,) if name in task.given}}
    return Task("question", prompt, given, f"made {hashlib.sha256(repr(prompt).encode()).hexdigest()[:16]}")


def require_single_prompts(source: Source) -> None:
    """Raise ValueError for games: there is no prompt to rewrite."""
    if "env" in source.gives:
        raise ValueError(f"task {source.name!r} is a game, whose prompts cannot be made anew; choose another task")


def mixed_in(
    old: Draw,
    take: Callable[[], Task | None],
    share: float,
    *,
    name: str,
    kinds: tuple[str, str],
    reads: frozenset[str],
    saw: Callable[[list[Group], Step], None],
    state: tuple[Stateful, ...],
    drew: Callable[[list[Task]], None] = lambda tasks: None,
) -> Draw:
    """What `old` draws, where each slot of a batch is with chance `share` given to a prompt that the run made.

    take: the next such prompt; None where there is none left: then the slot keeps its task
    kinds: names of prompts of the run and of those of `old`, for the metrics draw/KIND, their shares of the batch
    drew: gets the tasks of `old`
    """

    def call(step: Step) -> list[Task]:
        tasks, clock = old.call(step), step.clock
        drew(tasks)
        dice = randomness.rng(clock.seed, name, clock.step, clock.tick)
        for i in range(len(tasks)):
            if dice.random() < share and (made := take()) is not None:
                tasks[i] = made
        own = sum(MADE_FROM in task.given for task in tasks)
        step.notes.add(f"draw/{kinds[0]}", own, len(tasks))
        step.notes.add(f"draw/{kinds[1]}", len(tasks) - own, len(tasks))
        return tasks

    def both(groups: list[Group], step: Step) -> None:
        if old.saw is not None:
            old.saw(groups, step)
        saw(groups, step)

    writes = frozenset(key for key in old.writes if not key.startswith("given:")) | {"given:" + MADE_FROM}
    return replace(
        old,
        name=name,
        call=call,
        saw=both,
        ahead=False,
        reads=old.reads | reads,
        writes=writes,
        state=(*old.state, *state),
    )
