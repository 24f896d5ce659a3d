"""The splits and levels of tasks that are drawn by rule."""

from __future__ import annotations

from burnish.core.seeds import key_of

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
