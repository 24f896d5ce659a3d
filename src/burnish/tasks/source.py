"""The protocols of tasks: `Source` (problems with a verifier), `BatchSource` (scores whole batches)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, Protocol, runtime_checkable

from burnish.core.task import Task, Verdict

SPLITS = ("train", "heldout")


class NoVerifier(ValueError):
    """Raised by a source without a verifier; the message says what to pass instead."""


class Source(Protocol):
    """A family of tasks.

    name   its name on the command line
    gives  the keys of each Task.given: "answer", "demo" (a correct worked reply), "mistake" (a plausible wrong one),
           "chosen"/"rejected" (a preference), "env" (a factory of environments), or any column of a dataset
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
class BatchSource(Source, Protocol):
    """A source that scores whole batches and says what becomes of replies that it could not score.

    `Rewarded` (a reward function) and `Limited` (a verifier in the sandbox) are BatchSources; `batched` makes one of
    any
    Source.
    """

    @property
    def drop_failed(self) -> bool:
        """Whether replies without a verdict are removed from the batch, instead of scored 0."""
        ...

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


class SameTasks:
    """The tasks of a source, unchanged: the base of BatchSources that score its replies in another way."""

    def __init__(self, source: Source, drop_failed: bool = False) -> None:
        self.source, self.drop_failed = source, drop_failed
        self.name, self.summary, self.gives = source.name, source.summary, source.gives

    def size(self, split: str) -> int | None:
        return self.source.size(split)

    def task(self, split: str, index: int) -> Task:
        return self.source.task(split, index)


def unwrapped(source: Source) -> Source:
    """The source below all that change its scores or labels."""
    while isinstance(source, SameTasks):
        source = source.source
    return source
