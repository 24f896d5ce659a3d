"""A source whose replies are scored by a reward function of the user instead of its verifier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from burnish.core.types import Task, Verdict
from burnish.reward_functions.grader_pool import Graders
from burnish.reward_functions.load import RewardFunction
from burnish.reward_functions.reward import Found, LocalReward, Reward
from burnish.reward_functions.timed import TimedReward
from burnish.tasks.source import EagerScoring, SameTasks, Source


class Rewarded(SameTasks):
    """The tasks of a source, scored by a reward function (reward_functions/call.py) or several with weights.

    A score above 0.5 counts as correct; of several rewards, one above half of the sum of their positive weights.

    drop_failed  replies without a verdict are removed from the batch, instead of scored 0
    workers      concurrent calls of the function during sampling, each in its own process if there is a time limit;
                 0: one call a step, after sampling
    """

    def __init__(
        self, source: Source, reward: RewardFunction | Reward, *, drop_failed: bool = False, workers: int = 0
    ) -> None:
        super().__init__(source, drop_failed)
        self.reward = reward if isinstance(reward, Reward) else LocalReward(reward)
        asks = [self.reward.ask, *(self.reward.another().ask for _ in range(workers - 1))]
        self.graders = Graders(asks) if workers else None

    @property
    def timed(self) -> TimedReward | None:
        """The reward, if it is one function in its own process."""
        return self.reward if isinstance(self.reward, TimedReward) else None

    @property
    def eager(self) -> EagerScoring | None:
        return self if self.graders is not None else None

    def require_verifier(self, split: str) -> None:
        """A reward function can score any reply."""

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdicts([task], [reply])[0]

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        """Score a whole batch in one call."""
        results = (
            self.reward.ask(*_arguments(tasks, replies))
            if self.graders is None
            else self.begin(tasks, replies).result()
        )
        return self.heard(results)

    def begin(self, tasks: list[Task], replies: list[str]) -> Future[Found]:
        """Start scoring replies in one call of a worker. Pass the results of the whole batch to `heard`."""
        assert self.graders is not None
        return self.graders.begin(*_arguments(tasks, replies))

    def heard(self, results: Found) -> list[Verdict]:
        """The verdicts of a whole batch, from the results of its calls."""
        return self.reward.heard(results)


def is_rewarded(source: Source) -> bool:
    """Whether a reward of the user's scores the replies, in place of what the task has."""
    while isinstance(source, SameTasks):
        if isinstance(source, Rewarded):
            return True
        source = source.source
    return False


def _arguments(
    tasks: list[Task], replies: list[str]
) -> tuple[Sequence[Any], Sequence[str], Mapping[str, Sequence[Any]]]:
    columns = {
        name: [task.given.get(name) for task in tasks] for name in sorted({key for task in tasks for key in task.given})
    }
    prompts = [task.prompt if isinstance(task.prompt, str) else list(task.prompt) for task in tasks]
    return prompts, replies, columns
