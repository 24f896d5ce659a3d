"""Single questions as episodes of several attempts: a wrong answer is called wrong, and tried again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from burnish.core.task import Task
from burnish.envs.protocol import Outcome
from burnish.tasks.source import Source
from burnish.tasks.task_set import MadeTasks
from burnish.verifiers.final_answer import final_answer

AGAIN = "Incorrect. Please think again."


@dataclass(frozen=True)
class Attempt:
    """One attempt: its final answer without case and spaces, and its score."""

    answer: str
    score: float
    right: bool


Pay = Callable[[Sequence[Attempt], bool], float]  # (attempts so far, whether the last one ended the episode) -> reward


class Attempts(MadeTasks):
    """The tasks of a source as episodes of at most `most` attempts. pay: the reward of the newest attempt.

    until_right: a right attempt ends the episode; if not, all attempts are made
    """

    def __init__(self, source: Source, most: int, pay: Pay, *, until_right: bool = True, again: str = AGAIN) -> None:
        super().__init__(source)
        self.source.require_verifier("train")
        self.most, self.pay, self.until_right, self.again = most, pay, until_right, again
        self.gives = source.gives | {"env"}

    def task(self, split: str, index: int) -> Task:
        found = self.source.task(split, index)
        return Task(found.kind, found.prompt, {**found.given, "env": partial(Retry, self, found)}, found.key)

    def judge(self, task: Task, reply: str) -> Attempt:
        """The attempt that a reply is."""
        verdict = self.source.verify(task, reply)
        answer = "".join(final_answer(reply, str(task.given.get("answer", ""))).lower().split())
        return Attempt(answer, verdict.score, verdict.correct)


class Retry:
    """The environment of one task. key: the number of the attempt and the answers before it."""

    def __init__(self, source: Attempts, task: Task) -> None:
        self.source, self.task = source, task
        self.made: list[Attempt] = []

    def reset(self) -> str:
        """The prompt is the task's own."""
        self.made = []
        return ""

    def step(self, action: str) -> Outcome:
        """One attempt."""
        self.made.append(self.source.judge(self.task, action))
        right = self.made[-1].right and self.source.until_right
        over = right or len(self.made) >= self.source.most
        info: dict[str, object] = {"right": self.made[-1].right}
        return Outcome(self.source.again, self.source.pay(self.made, over), terminated=over, info=info)

    def key(self) -> str:
        """Equal after equal answers."""
        return " | ".join(attempt.answer for attempt in self.made)
