"""What the sources of environments share."""

from __future__ import annotations

from burnish.core.messages import Message
from burnish.core.task import NoVerifier, Task, Verdict


class Played:
    """Base of sources whose tasks are played with an environment that rewards them: there is no verifier."""

    drop_failed = False
    eager: None = None

    def require_verifier(self, split: str) -> None:
        """Episodes are rewarded as they are played: compose/multi_turn.py puts that in the place of a verifier."""

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        return [self.verify(task, reply) for task, reply in zip(tasks, replies, strict=True)]

    def verify(self, task: Task, reply: str) -> Verdict:
        kind = task.key.partition(" ")[0]
        raise NoVerifier(f"task {kind!r} is an environment: it rewards steps, and is played, not verified")


def demonstration_of(messages: list[Message]) -> dict[str, object]:
    """What an expert's episode gives a task: the conversation, and its last reply."""
    return {"demo": messages[-1]["content"], "messages": messages}
