"""A mixture gives each reply to the verifier of its own task, whatever stands beside it."""

from __future__ import annotations

from collections.abc import Callable

from burnish.core.types import Task
from burnish.tasks.mixture import Ingredient, Mixture
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded


def number_times(factor: float) -> Callable[..., list[float]]:
    return lambda completions, **_: [factor * float(completion) for completion in completions]


def test_each_reply_of_a_batch_has_the_verdict_that_it_has_alone() -> None:
    """Three sources that multiply a reply's number by 1, 10 and 100; the order of tasks is that of no source."""
    names = ["add", "sort", "reverse"]
    sources = [rewarded(source(name), number_times(10.0**i)) for i, name in enumerate(names)]
    mixture = Mixture("three", [Ingredient(one, name) for one, name in zip(sources, names, strict=True)])
    drawn = [mixture.task("train", index) for index in range(40)]
    of: dict[str, list[Task]] = {name: [task for task in drawn if task.given["dataset"] == name] for name in names}
    order = ["sort", "add", "reverse", "add", "sort", "sort", "reverse", "add"]
    tasks = [of[name].pop() for name in order]
    replies = [str(number) for number in (3, 1, 4, 1.5, 9, 2, 6, 5)]
    wanted = [30, 1, 400, 1.5, 90, 20, 600, 5]
    assert [verdict.score for verdict in mixture.verdicts(tasks, replies)] == wanted
    assert [mixture.verify(task, reply).score for task, reply in zip(tasks, replies, strict=True)] == wanted
    assert [verdict.score for verdict in mixture.verdicts(tasks[::-1], replies[::-1])] == wanted[::-1]
