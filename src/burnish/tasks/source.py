"""The protocols of tasks: `Source` (problems with a verifier) and `Scoring` (verdicts on whole batches)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from burnish.core.task import Task, Verdict


class Source(Protocol):
    """A family of tasks.

    name   its name on the command line
    gives  the keys of each Task.given: "answer", "demo" (a correct worked reply), "mistake" (a plausible wrong one),
           "chosen"/"rejected" (a preference), "env" (a factory of environments), or any column of a dataset

    A source that takes its tasks from others lists them in `sources()`; leaves (tasks/task_set.py) finds the last ones.
    """

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def gives(self) -> frozenset[str]: ...

    def size(self, split: str) -> int | None:
        """The number of tasks of the split; None if it is endless."""
        ...

    def task(self, split: str, index: int) -> Task:
        """The task at an index, deterministic. No key is in both splits."""
        ...

    def verify(self, task: Task, reply: str) -> Verdict:
        """The verdict of a reply; raises NoVerifier if the source has no verifier."""
        ...


class EagerScoring(Protocol):
    """Scoring that starts while other replies are still being sampled."""

    def begin(self, tasks: list[Task], replies: list[str]) -> Future[list[Any]]:
        """Start scoring replies in one call. The results of all calls of a batch go to `heard`."""
        ...

    def heard(self, results: list[Any]) -> list[Verdict]:
        """The verdicts of a whole batch, from the results of its calls."""
        ...


@runtime_checkable
class Scoring(Protocol):
    """What scores whole batches of replies: one of tasks/scoring.py, or a source that does so itself."""

    @property
    def eager(self) -> EagerScoring | None:
        """Scoring that starts during sampling; None if the batch is scored in one call after it."""
        ...

    def require_verifier(self, split: str) -> None:
        """Raise NoVerifier, before anything is sampled, if replies cannot be scored."""
        ...

    def verdicts(self, tasks: list[Task], replies: list[str]) -> Sequence[Verdict]:
        """A verdict for each reply."""
        ...
