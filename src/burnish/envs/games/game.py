"""`GameFamily` and `Game`: bases of the built-in environments.

A family draws positions and makes games of them; a game is one episode. Train and held-out splits never share a
position. Each task demonstrates an episode that the game's expert plays.
"""

from __future__ import annotations

import copy
import random
from abc import ABC, abstractmethod
from functools import partial
from typing import Any, ClassVar

from burnish.core.messages import Message
from burnish.core.seeds import rng
from burnish.core.splits import check_level, in_split
from burnish.core.task import NoVerifier, Task
from burnish.envs.expert import expert_episode
from burnish.envs.guarded import GuardedEnv
from burnish.envs.played import Played, demonstration_of
from burnish.envs.protocol import Outcome
from burnish.verifiers.answer_line import LONGEST_REPLY

Position = Any  # a frozen dataclass or a tuple of plain values; each game documents its own


class Game(ABC):
    """One episode. A subclass says how it opens, what an action does, what an expert does, and what the state is.

    position  the drawn position; never changes
    most      actions after which the episode is cut off; 0: no limit
    """

    most: int = 0

    def __init__(self, position: Position) -> None:
        self.position = position
        self.made, self.over = 0, False

    @abstractmethod
    def opening(self) -> str | tuple[Message, ...]:
        """Set the state to that of the position; return the first observation."""

    @abstractmethod
    def act(self, action: str) -> Outcome:
        """What an action does. The action is stripped and at most LONGEST_REPLY characters; it must not raise."""

    @abstractmethod
    def expert(self) -> str:
        """A best action in this state."""

    @abstractmethod
    def key(self) -> str:
        """The state: equal states have equal keys."""

    def reset(self) -> str | tuple[Message, ...]:
        self.made, self.over = 0, False
        return self.opening()

    def step(self, action: str) -> Outcome:
        if self.over:
            raise ValueError("the game is over; call reset() to play it again")
        self.made += 1
        found = self.act(action[-LONGEST_REPLY:].strip())
        if not found.over and self.most and self.made >= self.most:
            found = Outcome(found.observation, found.reward, truncated=True, info=found.info, rewards=found.rewards)
        self.over = found.over
        return found

    def fork(self) -> Game:
        """A copy that goes its own way."""
        return copy.deepcopy(self)


class GameFamily(Played, ABC):
    """A built-in source of games: endless, indexed, seeded.

    level  difficulty: 1 is the easiest, 2 the default
    seed   changes the order of tasks; the split of a position never changes
    seat   of a game of several players: the demonstrations are those of this seat, and there is nothing to play; a
           model that imitates them can take the seat (--opponent)
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    game: ClassVar[type[Game]]
    levels: ClassVar[tuple[int, ...]] = (1, 2, 3)
    gives: ClassVar[frozenset[str]] = frozenset({"env", "demo", "messages"})

    def __init__(self, level: int = 2, seed: int = 0, seat: str = "") -> None:
        self.level = check_level(self.name, level, self.levels)
        self.seed, self.seat = seed, seat
        if not seat:
            return
        others = tuple(getattr(self.game, "seats", ()))[1:]
        if seat not in others:
            there = f"it is {' or '.join(others)}" if others else "the game has one player"
            raise ValueError(f"task {self.name!r}: the seat is {seat!r}; {there}")
        self.gives = frozenset({"demo", "messages"})  # type: ignore[misc]  # of this source, not of its class

    @abstractmethod
    def draw(self, dice: random.Random) -> Position:
        """One position of this level. Its repr is its identity."""

    def size(self, split: str) -> int | None:
        return None

    def position(self, split: str, index: int) -> Position:
        """The position at an index: drawn until one belongs to the split."""
        attempt = 0
        while True:
            position = self.draw(rng(self.seed, self.name, self.level, index, attempt))
            if in_split(split, self.key(position)):
                return position
            attempt += 1

    def key(self, position: Position) -> str:
        return f"{self.name} {position!r}"

    def task(self, split: str, index: int) -> Task:
        if self.seat:
            return self._of_seat(split, index)
        position = self.position(split, index)
        make = partial(self.game, position)
        messages = expert_episode(GuardedEnv(make), None, 0)
        prompt = tuple(message for message in messages[: _first_reply(messages)])
        return Task("game", prompt, {"env": make, **demonstration_of(messages)}, self.key(position))

    def require_verifier(self, split: str) -> None:
        if self.seat:
            raise NoVerifier(f"task {self.name!r} with seat={self.seat} has demonstrations, and no judge of replies")

    def _of_seat(self, split: str, index: int) -> Task:
        """What another seat sees and says, in the first game from this index on in which it has a turn."""
        attempt = 0
        while True:
            position = self.position(split, index + 1_000_003 * attempt)
            messages = expert_episode(GuardedEnv(partial(self.game, position)), None, 0, self.seat)
            if messages:
                prompt = tuple(messages[: _first_reply(messages)])
                return Task("demo", prompt, demonstration_of(messages), f"{self.key(position)} as {self.seat}")
            attempt += 1


def _first_reply(messages: list[Message]) -> int:
    return next(i for i, message in enumerate(messages) if message["role"] == "assistant")
