"""A source whose replies are scored by the user's function instead of its own verifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any

from burnish.nouns import Task, Verdict
from burnish.tasks.graders import Graders
from burnish.tasks.rewards import RewardFunction, call_reward
from burnish.tasks.source import Source
from burnish.tasks.timed import Failed, TimedReward

Found = list[Verdict | Failed]


class Rewarded:
    """The tasks of a source, the scores of f(completions, **columns) -> list[float]. A score above 0.5 counts as correct.

    drop_failed: replies without a verdict are taken out of the batch, instead of scored 0
    workers: calls of the function that may run at once, beside sampling; 0: one call a step, after all is sampled. With a time limit
    each of them has a process of its own.
    """

    def __init__(
        self, source: Source, function: RewardFunction | TimedReward, *, drop_failed: bool = False, workers: int = 0
    ) -> None:
        self.source, self.drop_failed = source, drop_failed
        self.timed = function if isinstance(function, TimedReward) else None
        self._ask = function.ask if isinstance(function, TimedReward) else partial(_judge_here, function)
        self.graders = Graders([self._ask, *(self._another() for _ in range(workers - 1))]) if workers else None
        self.name, self.summary, self.gives = source.name, source.summary, source.gives

    def size(self, split: str) -> int | None:
        return self.source.size(split)

    def task(self, split: str, index: int) -> Task:
        return self.source.task(split, index)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdicts([task], [reply])[0]

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        """The whole batch in one call, as the function expects it."""
        found = self._ask(*_arguments(tasks, replies)) if self.graders is None else self.begin(tasks, replies).result()
        return self.heard(found)

    def begin(self, tasks: list[Task], replies: list[str]) -> Future[Found]:
        """Have replies judged by one of the workers, in one call. What comes of a whole batch of such calls is to be `heard`."""
        assert self.graders is not None
        return self.graders.begin(*_arguments(tasks, replies))

    def heard(self, found: Found) -> list[Verdict]:
        """The verdicts of a whole batch."""
        return self.timed.heard(found) if self.timed is not None else found  # type: ignore[return-value]

    def _another(self) -> Any:
        return self._ask if self.timed is None else TimedReward(self.timed.spec, self.timed.seconds).ask


def _arguments(
    tasks: list[Task], replies: list[str]
) -> tuple[Sequence[Any], Sequence[str], Mapping[str, Sequence[Any]]]:
    columns = {
        name: [task.given.get(name) for task in tasks] for name in sorted({key for task in tasks for key in task.given})
    }
    prompts = [task.prompt if isinstance(task.prompt, str) else list(task.prompt) for task in tasks]
    return prompts, replies, columns


def _judge_here(
    function: RewardFunction, prompts: Sequence[Any], replies: Sequence[str], columns: Mapping[str, Sequence[Any]]
) -> Found:
    return [Verdict(score, score > 0.5) for score in call_reward(function, prompts, replies, columns)]
