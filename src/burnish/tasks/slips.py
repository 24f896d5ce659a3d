"""Typical mistakes in lists, shared by `sort`, `reverse` and `edit`."""

from __future__ import annotations

import random
from collections.abc import Sequence


def _swap(items: list[str], dice: random.Random) -> list[str]:
    at = dice.randrange(len(items) - 1)
    items[at], items[at + 1] = items[at + 1], items[at]
    return items


def _drop(items: list[str], dice: random.Random) -> list[str]:
    del items[dice.randrange(len(items))]
    return items


def _repeat(items: list[str], dice: random.Random) -> list[str]:
    at = dice.randrange(len(items))
    return items[: at + 1] + items[at:]


def slip(items: Sequence[str], pool: Sequence[str], dice: random.Random) -> list[str]:
    """The items with one mistake: two neighbours swapped, one dropped, one repeated, or one replaced from the pool."""
    copy = list(items)
    if len(copy) < 2:
        return [*copy, dice.choice(pool)]
    kind = dice.randrange(4)
    if kind == 3:
        copy[dice.randrange(len(copy))] = dice.choice(pool)
        return copy
    return (_swap, _drop, _repeat)[kind](copy, dice)
