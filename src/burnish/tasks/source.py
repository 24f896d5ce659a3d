"""What a source of tasks is: an indexed, seeded family of problems with a verifier."""

from __future__ import annotations

from typing import Protocol

from burnish.nouns import Task, Verdict

SPLITS = ("train", "heldout")


class NoVerifier(ValueError):
    """A source that cannot judge replies says so, and what to pass instead. Any other error of a verifier is data."""


class Source(Protocol):
    """A family of tasks.

    name   how the command line calls it
    gives  what each Task.given holds: "answer", "demo" (a correct worked reply), "mistake" (a plausible wrong one),
           "chosen"/"rejected" (a preference), "env" (a factory of environments), or any column of a dataset
    """

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def gives(self) -> frozenset[str]: ...

    def size(self, split: str) -> int | None:
        """How many tasks the split has; None when it has no end."""
        ...

    def task(self, split: str, index: int) -> Task:
        """The task at an index: always the same one. No key is ever in both splits."""
        ...

    def verify(self, task: Task, reply: str) -> Verdict:
        """How good the reply is. A source without a verifier raises NoVerifier, which says what to pass instead."""
        ...


class Environment(Protocol):
    """A multi-turn text environment whose state can be saved and put back."""

    def reset(self) -> str:
        """Start over; the first thing it says (this is also the task's prompt)."""
        ...

    def step(self, action: str) -> tuple[str, float, bool]:
        """What it answers to the action, the reward earned, and whether the game is over."""
        ...

    def state_dict(self) -> dict[str, object]: ...

    def load_state_dict(self, state: dict[str, object]) -> None: ...
