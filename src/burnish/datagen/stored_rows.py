"""The rows of a task as a file has them."""

from __future__ import annotations

from typing import Any

from burnish.core.messages import prompt_shown
from burnish.core.task import Task
from burnish.core.types_json import plain
from burnish.tasks.resolve import datasets_of
from burnish.tasks.source import Source

KEPT = ("answer", "chosen", "rejected")  # of a task that is no dataset


def row_at(source: Source, split: str, index: int) -> tuple[Task, dict[str, Any]]:
    """A task with its row: of a dataset unchanged, of another task with the columns that a dataset would have."""
    task = source.task(split, index)
    datasets = datasets_of(source)
    if len(datasets) == 1 and datasets[0].task(split, index).key == task.key:
        part = datasets[0].part(split)
        return task, plain(part.rows[int(part.numbers[index % len(part.numbers)])])
    return task, row_of(task)


def row_of(task: Task, completion: str | None = None) -> dict[str, Any]:
    """The row of a task: prompt, completion (by default its demonstration), answer and what else it was given."""
    said = task.given.get("demo") if completion is None else completion
    more = {name: value for name, value in task.given.items() if name in KEPT}
    row: dict[str, Any] = plain({"prompt": task.prompt, **({} if said is None else {"completion": said}), **more})
    return row


def rows_asked(size: int | None, tasks: int | None, endless: int) -> int:
    """How many rows a command reads: --tasks of them, by default all `size`, or `endless` of a task without an end."""
    wanted = tasks or (endless if size is None else size)
    return wanted if size is None else min(wanted, size)


def prompts_of(source: Source, count: int) -> list[str]:
    """The prompts of an evaluation: all rows of a dataset, or `count` held-out ones of a task without an end."""
    if datasets_of(source):
        places = [(split, i) for split in ("train", "heldout") for i in range(source.size(split) or 0)]
    else:
        places = [("heldout", i) for i in range(count)]
    return [prompt_shown(source.task(split, i).prompt) for split, i in places]
