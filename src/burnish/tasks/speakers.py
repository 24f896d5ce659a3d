"""Several agents in one task: in each step of the environment they speak in a fixed order, and the last one acts.

A seat is a name and an instruction. The episode is one conversation: the observation and the first seat's instruction,
its reply, the second seat's instruction, its reply, and so on; what the last seat replies is the action. Every agent
reads what the agents before it said. All seats have the weights of the policy.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from burnish.core.messages import Message, text_of
from burnish.core.task import Task, Verdict
from burnish.envs.protocol import Observed, Outcome, offers, read_outcome, reset_arguments
from burnish.tasks.source import SameTasks, Source


@dataclass(frozen=True)
class Seat:
    """An agent: its name, and the instruction that it is given before each of its turns."""

    name: str
    instruction: str


def read_seats(text: str) -> tuple[Seat, ...]:
    """Seats in their order, from "planner: Think what to do. | actor: Act."."""
    seats = []
    for piece in text.split("|"):
        name, colon, instruction = (part.strip() for part in piece.partition(":"))
        if not name or not colon:
            raise ValueError(f"the seat {piece.strip()!r} has no name; write NAME: INSTRUCTION | NAME: INSTRUCTION")
        seats.append(Seat(name, instruction))
    names = [seat.name for seat in seats]
    if len(set(names)) < len(names):
        raise ValueError(f"two seats have the same name among {', '.join(names)}; rename one")
    return tuple(seats)


class InTurn(SameTasks):
    """The tasks of a source with an environment, played by several agents."""

    eager = None

    def __init__(self, source: Source, seats: tuple[Seat, ...]) -> None:
        if "env" not in source.gives:
            raise ValueError(f"task {source.name!r} has no environment for agents to act in; choose one, such as guess")
        super().__init__(source)
        self.seats = seats

    def task(self, split: str, index: int) -> Task:
        found = self.source.task(split, index)
        env = partial(Table, found.given["env"], self.seats)
        return replace(found, prompt=_with(found.prompt, self.seats[0].instruction), given={**found.given, "env": env})

    def require_verifier(self, split: str) -> None:
        """The environment rewards."""

    def verdicts(self, tasks: list[Task], replies: list[str]) -> list[Verdict]:
        return [self.verify(task, reply) for task, reply in zip(tasks, replies, strict=True)]

    def verify(self, task: Task, reply: str) -> Verdict:
        return self.source.verify(task, reply)


class Table:
    """The environment of one episode: the inner environment steps after the last seat's turn."""

    def __init__(self, make: Any, seats: tuple[Seat, ...]) -> None:
        self.inner, self.speakers = make(), seats
        self.said: list[str] = []

    def reset(self, task: Any = None, seed: int = 0) -> Any:
        """The inner environment's first observation; the task's prompt has it already."""
        self.said = []
        return self.inner.reset(**reset_arguments(self.inner.reset, task, seed))

    def step(self, action: str) -> Outcome | Awaitable[Outcome]:
        """A turn of the seat whose turn it is: the next seat's instruction, or what the environment answers."""
        self.said.append(action)
        if len(self.said) < len(self.speakers):
            return Outcome(self.speakers[len(self.said)].instruction, 0.0)
        self.said = []
        found = self.inner.step(action)
        return self._later(found) if inspect.isawaitable(found) else self._followed(found)

    async def _later(self, found: Awaitable[Any]) -> Outcome:
        return self._followed(await found)

    def _followed(self, found: Any) -> Outcome:
        outcome = read_outcome(found)
        return replace(outcome, observation=_with(outcome.observation, self.speakers[0].instruction))

    def key(self) -> str:
        """The inner state, the seat whose turn it is, and what was said before it in this step."""
        inner = str(self.inner.key()) if offers(self.inner, "key") else str(id(self))
        return " | ".join([inner, self.speakers[len(self.said)].name, *self.said])

    def close(self) -> None:
        if offers(self.inner, "close"):
            self.inner.close()


def _with(observed: Observed, instruction: str) -> Any:
    """An observation and an instruction after it: in its last message, where it has messages."""
    if not instruction:
        return observed
    if isinstance(observed, str):
        return f"{observed}\n{instruction}".strip()
    last: Message = {**observed[-1], "content": f"{text_of(observed[-1])}\n{instruction}".strip()}
    return (*observed[:-1], last)
