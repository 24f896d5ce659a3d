"""The tasks of a source for an agent that is a program of its own: `--agent my_agent.py:run`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from burnish.core.task import Task, Verdict
from burnish.serve.pulled import Pulled
from burnish.tasks.batched import batched
from burnish.tasks.source import EagerScoring, SameTasks, Source


class Hosted(SameTasks):
    """Each task is worked on by a call of the agent, which asks the policy through an endpoint (rollout/hosted.py).

    pays: the agent's return value, or the reward that it posted, is the reward; else the source's verifier judges.
    """

    def __init__(self, source: Source, agent: Callable[..., Any] | Pulled, pays: bool) -> None:
        inner = batched(source)
        super().__init__(inner, inner.drop_failed)
        self._inner, self.agent, self.pays = inner, agent, pays
        self.gives = source.gives | {"agent"}

    @property
    def eager(self) -> EagerScoring | None:
        return None

    def require_verifier(self, split: str) -> None:
        if not self.pays:
            self._inner.require_verifier(split)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.verdicts([task], [reply])[0]

    def verdicts(self, tasks: list[Task], replies: list[str]) -> Sequence[Verdict]:
        return self._inner.verdicts(tasks, replies)


def hosted_by(source: Source) -> Hosted | None:
    """The source or one below it that an agent works on; None where there is none."""
    while isinstance(source, SameTasks):
        if isinstance(source, Hosted):
            return source
        source = source.source
    return None
