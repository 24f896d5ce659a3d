"""`Task` and `Verdict`: a problem, and a verifier's result for one reply. Without torch, for grader processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from burnish.core.messages import Message as Message
from burnish.core.messages import check_message


@dataclass(frozen=True)
class Task:
    """A problem to answer.

    kind    "question", "demo", "pair", "game" or "past"; stages do not branch on it
    prompt  chat messages (messages.py), or plain text
    given   data that belongs to it: "answer", "demo", "chosen", "rejected", "env", any other column
    key     identity: two tasks with the same key are the same problem
    """

    kind: str
    prompt: tuple[Message, ...] | str
    given: Mapping[str, Any]
    key: str

    def __post_init__(self) -> None:
        for message in self.prompt if not isinstance(self.prompt, str) else ():
            check_message(message)


MADE_FROM = "made_from"  # in Task.given of a prompt that the run made: the key of the task that it was made from
CANARY_PASSED = "canary_passed"  # in Verdict.parts: 1 where tests that contradict each other were passed


@dataclass(frozen=True)
class Verdict:
    """A verifier's result for one reply: a score in [0, 1], whether it counts as correct, and the reason if not.

    failed: the verifier itself failed, so the score says nothing about the reply
    parts: the rewards that the score is made of, by the names of their functions
    """

    score: float
    correct: bool
    reason: str = ""
    failed: bool = False
    parts: Mapping[str, float] = field(default_factory=dict, compare=False)


class NoVerifier(ValueError):
    """Raised by a source of tasks without a verifier; the message says what to pass instead."""
