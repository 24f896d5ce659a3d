"""Intrinsic functions (Pangu-Agent): before it acts, an agent writes to its memory; the environment sees the act."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from burnish.core.task import Message, Task, Verdict
from burnish.envs.protocol import Observed, Outcome, read_observation, read_outcome, reset_arguments
from burnish.tasks.source import SameTasks, Source

FUNCTIONS: Mapping[str, str] = {
    "think": "Think.",
    "plan": "Plan.",
    "reflect": "Reflect.",
    "act": "Act.",
}  # what each function is asked; "act" is the extrinsic one


class Intrinsic(SameTasks):
    """The tasks of a source with an environment; each action comes after replies to these intrinsic functions.

    The memory of the agent is the conversation: every function reads all of it and adds its reply. Without functions
    the tasks are unchanged.
    """

    def __init__(self, source: Source, functions: Sequence[str]) -> None:
        if "env" not in source.gives:
            raise ValueError(f"task {source.name!r} has no environment to act in; choose one with several turns")
        unknown = [name for name in functions if name not in FUNCTIONS or name == "act"]
        if unknown:
            known = ", ".join(name for name in FUNCTIONS if name != "act")
            raise ValueError(f"there is no intrinsic function {unknown[0]!r}; there are {known}")
        super().__init__(source)
        self.functions = tuple(functions)

    def task(self, split: str, index: int) -> Task:
        found = self.source.task(split, index)
        if not self.functions:
            return found
        given = {**found.given, "env": partial(Thinking, found.given["env"], self.functions)}
        asked = FUNCTIONS[self.functions[0]]
        prompt = f"{found.prompt}\n{asked}" if isinstance(found.prompt, str) else _asking(found.prompt, asked)
        return Task(found.kind, prompt, given, found.key)

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.source.verify(task, reply)


class Thinking:
    """An environment behind intrinsic functions: their replies earn nothing and change nothing in it."""

    def __init__(self, make: Any, functions: Sequence[str]) -> None:
        self.inner, self.functions = make(), tuple(functions)
        self.asked = 0  # functions answered since the last action

    def reset(self, task: Any = None, seed: int = 0) -> Observed:
        """What the environment says, and the first function."""
        self.asked = 0
        seen = read_observation(self.inner.reset(**reset_arguments(self.inner.reset, task, seed)))
        return self._with(seen)

    def step(self, action: str) -> Outcome:
        """A reply to an intrinsic function is followed by the next one; the last of them is the action."""
        if self.asked < len(self.functions):
            self.asked += 1
            return Outcome(self._question(), 0.0)
        self.asked = 0
        found = read_outcome(self.inner.step(action))
        return Outcome(self._with(found.observation), found.reward, found.terminated, found.truncated, found.info)

    def key(self) -> str | None:
        """The environment's state, and how many functions are answered."""
        known = getattr(self.inner, "key", None)
        return f"{known()} | {self.asked}" if callable(known) else None

    def close(self) -> None:
        """Close the environment."""
        ended = getattr(self.inner, "close", None)
        if callable(ended):
            ended()

    def _question(self) -> str:
        return FUNCTIONS[self.functions[self.asked] if self.asked < len(self.functions) else "act"]

    def _with(self, seen: Observed) -> Observed:
        return f"{seen}\n{self._question()}" if isinstance(seen, str) else _asking(seen, self._question())


def _asking(messages: Sequence[Message], asked: str) -> tuple[Message, ...]:
    """The messages with a question behind the last."""
    *before, last = messages
    return (*before, {**last, "content": f"{last['content']}\n{asked}"})
