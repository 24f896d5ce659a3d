"""A source whose replies are scored by the user's function instead of its own verifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from burnish.nouns import Task, Verdict
from burnish.tasks.rewards import RewardFunction, call_reward
from burnish.tasks.source import Source
from burnish.tasks.timed import TimedReward


class Rewarded:
    """The tasks of a source, the scores of f(completions, **columns) -> list[float]. A score above 0.5 counts as correct.

    drop_failed: replies without a verdict are taken out of the batch, instead of scored 0
    """

    def __init__(self, source: Source, function: RewardFunction | TimedReward, *, drop_failed: bool = False) -> None:
        self.source, self.drop_failed = source, drop_failed
        self.judge = function if isinstance(function, TimedReward) else partial(_judge_here, function)
        self.name, self.summary, self.gives = source.name, source.summary, source.gives

    def size(self, split: str) -> int | None:
        return self.source.size(split)

    def task(self, split: str, index: int) -> Task:
        return self.source.task(split, index)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdicts([task], [reply])[0]

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        """The whole batch in one call, as the function expects it."""
        columns = {
            name: [task.given.get(name) for task in tasks]
            for name in sorted({key for task in tasks for key in task.given})
        }
        prompts = [task.prompt if isinstance(task.prompt, str) else list(task.prompt) for task in tasks]
        return self.judge(prompts, replies, columns)


def _judge_here(
    function: RewardFunction, prompts: Sequence[Any], replies: Sequence[str], columns: Mapping[str, Sequence[Any]]
) -> list[Verdict]:
    return [Verdict(score, score > 0.5) for score in call_reward(function, prompts, replies, columns)]
