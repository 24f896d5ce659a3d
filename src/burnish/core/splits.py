"""The splits and levels of tasks that are drawn by rule."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import ClassVar, TypeVar

from burnish.core.seeds import key_of, rng

_Drawn = TypeVar("_Drawn")

SPLITS = ("train", "heldout")
HELDOUT_EVERY = 8  # one key in eight is held out


def in_split(split: str, key: str) -> bool:
    """Whether the problem with this key belongs to the split: one key in eight is held out, by its hash."""
    if split not in SPLITS:
        raise ValueError(f"split {split!r} is unknown; the splits are {', '.join(SPLITS)}")
    return (key_of(key) % HELDOUT_EVERY == 0) == (split == "heldout")


def check_level(name: str, level: int, levels: tuple[int, ...]) -> int:
    """The level; raise ValueError listing the valid levels if there is no such level."""
    if level not in levels:
        raise ValueError(f"task {name!r} has no level {level!r}; choose one of {', '.join(map(str, levels))}")
    return level


class ByLevel:
    """What sources share whose tasks are drawn by rule: a level, a seed, no last task, a verifier without state."""

    name: ClassVar[str]
    levels: ClassVar[tuple[int, ...]] = (1, 2, 3, 4)

    def __init__(self, level: int = 1, seed: int = 0) -> None:
        self.level, self.seed = check_level(self.name, level, self.levels), seed

    def size(self, split: str) -> int | None:
        return None

    def drawn(
        self, split: str, index: int, draw: Callable[[random.Random], _Drawn], key: Callable[[_Drawn], str]
    ) -> _Drawn:
        """What is drawn at an index: the first attempt whose key belongs to the split."""
        attempt = 0
        while True:
            drawn = draw(rng(self.seed, self.name, self.level, index, attempt))
            if in_split(split, key(drawn)):
                return drawn
            attempt += 1

    def scorer(self) -> dict[str, object]:
        """The spec from which the verifier process rebuilds this verifier."""
        return {"kind": "builtin", "source": type(self).__module__, "name": type(self).__name__, "level": self.level}
