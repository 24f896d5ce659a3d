"""`WorkFamily`: sources of tasks with slow environments, whose expert plays when a demonstration is read."""

from __future__ import annotations

import hashlib
from abc import ABC
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from burnish.core.task import Task
from burnish.envs.expert import expert_episode
from burnish.envs.games.game import GameFamily, Position
from burnish.envs.guarded import Failure, GuardedEnv
from burnish.envs.played import demonstration_of

_DEMONSTRATION = ("demo", "messages")


class Shown(Mapping[str, object]):
    """What comes with a task: its environment, and a demonstration that is played when it is first read."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._given: dict[str, object] = {"env": make}

    def __getitem__(self, name: str) -> object:
        if name in _DEMONSTRATION and name not in self._given:
            make = self._given["env"]
            assert callable(make)
            try:
                self._given |= demonstration_of(expert_episode(GuardedEnv(make), None, 0))
            except Failure as failure:
                raise ValueError(f"the expert cannot play: {failure}") from None
        return self._given[name]

    def __iter__(self) -> Iterator[str]:
        return iter(("env", *_DEMONSTRATION))

    def __len__(self) -> int:
        return 1 + len(_DEMONSTRATION)


class WorkFamily(GameFamily, ABC):
    """Like the games in the box, but for what is said above; and keys are short, however much a position holds."""

    def key(self, position: Position) -> str:
        return f"{self.name} {self.level} {hashlib.sha256(repr(position).encode()).hexdigest()[:16]}"

    def task(self, split: str, index: int) -> Task:
        position = self.position(split, index)
        make = partial(self.game, position)
        env = GuardedEnv(make)
        try:
            seen = env.observed(env.begin_reset(None, 0))
        except Failure as failure:
            raise ValueError(f"task {self.name!r} cannot be started: {failure}") from None
        finally:
            env.close()
        assert isinstance(seen, str)
        return Task("game", ({"role": "user", "content": seen},), Shown(make), self.key(position))
