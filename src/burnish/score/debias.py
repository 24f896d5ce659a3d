"""ArmoRM's attributes (arXiv 2406.12845): ridge regressions on a frozen backbone, and verbosity taken out of them."""

from __future__ import annotations

from burnish.core.step import Step
from burnish.core.types import Task, Trace
from burnish.score.heads import answered
from burnish.tasks.source import Source

REPLIES = ("chosen", "rejected", "demo", "mistake")  # columns of replies in the data


def training_tasks(source: Source, count: int) -> list[Task]:
    """The first training tasks of a source."""
    size = source.size("train")
    return [source.task("train", i) for i in range(count if size is None else min(count, size))]


def data_replies(source: Source, count: int, step: Step, model: str, columns: tuple[str, ...] = REPLIES) -> list[Trace]:
    """The replies of the first `count` training tasks of a source, as a model reads them."""
    reader = step.models[model]
    return [
        answered(task, str(task.given[column]), reader.chat, reader.context)
        for task in training_tasks(source, count)
        for column in columns
        if task.given.get(column) is not None
    ]
