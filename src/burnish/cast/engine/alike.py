"""Rows that have read and said the same so far: one of them is computed for all, until they say something different.

Replies to one prompt begin as one: their keys and values, and what they could say next, are the same, bit for bit. What each does say is
drawn by its own noise. Rows that say the same stay together; those that part take a copy of what they have in common along.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from burnish.cast.blend import Mix
from burnish.cast.engine.decoding import Roots
from burnish.cast.engine.reader import Reader
from burnish.cast.engine.rows import Rows
from burnish.cast.tree import Numbers

Mask = npt.NDArray[np.bool_]


class Alike:
    """at [rows]: the slot where what a row has read so far lies. It is that of one of the rows that share it."""

    def __init__(self, readers: Sequence[Reader], rows: Rows, mix: Mix | None) -> None:
        self.readers, self.rows, self.mix = readers, rows, mix
        self.at: Numbers = np.empty(0, dtype=np.int64)
        self.read = self.at  # the number of what each has read last, kept for the trainer; -1: it is not

    def enter(self, prompts: Sequence[Any], slots: list[int]) -> list[int]:
        """More rows, with their prompts and slots; the slots into which each of the different prompts has to be written."""
        of = dict(zip(reversed(prompts), reversed(slots), strict=True))  # of several slots, the first
        self.at = np.concatenate([self.at, [of[prompt] for prompt in prompts]])
        self.read = np.concatenate([self.read, [prompt.number for prompt in prompts]])
        return [of[prompt] for prompt in dict.fromkeys(prompts)]

    def logits(self, n: int, roots: Roots | None) -> Tensor | None:
        """[n, V]: what each of the first n rows could say next; None where none of them lives."""
        leaders, number = leading(self.at[:n], ~self.rows.done[:n].numpy())
        if not len(leaders):
            return None
        rows, slots = torch.from_numpy(leaders), torch.from_numpy(self.at[leaders])
        some = roots.of(leaders) if roots is not None else None
        memory, before = self.readers[0].memory, self.read[leaders]
        first = None if memory is None or (before < 0).any() else memory.take(len(leaders))
        found = [reader.next(self.rows, rows, some, slots, first) for reader in self.readers]
        self.read[:n] = -1
        if first is not None:
            self.read[:n] = np.array(memory.note(before.tolist(), self.rows.last[rows].tolist(), first))[number]
        each = self.mix(found) if self.mix else found[0]
        return each if len(rows) == n else each[torch.from_numpy(number)]

    def part(self, slots: list[int], alive: Mask) -> None:
        """Rows that no longer say the same, and rows whose slot's own row lives no longer, get what they have read into their own."""
        said = self.rows.last[: len(alive)].numpy()
        self.at, movers = parted(self.at, np.array(slots), said, alive)
        if len(movers):
            which, old = movers.T
            read = (self.rows.base[which] + self.rows.count[which] - 1).numpy()
            for reader in self.readers:
                reader.store.copy(old, self.at[which], read)

    def move(self, source: list[int], to: list[int], left: int) -> None:
        """Rows take the places of others; so many are left."""
        for held in (self.at, self.read):
            held[to] = held[source]
        self.at, self.read = self.at[:left].copy(), self.read[:left].copy()


def leading(at: Numbers, alive: Mask) -> tuple[Numbers, Numbers]:
    """One row of each kind that lives, in order, and for every row the number of its own among them (0 for rows that do not live)."""
    rows = np.flatnonzero(alive)
    _, first, which = np.unique(at[rows], return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    number = np.zeros(len(alive), dtype=np.int64)
    number[rows] = place[which]
    return rows[first[order]], number


def parted(at: Numbers, slots: Numbers, said: Numbers, alive: Mask) -> tuple[Numbers, Numbers]:
    """Where what each row has read shall lie now that it has said something, and [movers, 2]: rows that need a copy, and from where.

    The row whose own slot it is keeps it, with all that said the same; the first row of every other kind gets a copy into its own.
    """
    rows = np.flatnonzero(alive)
    _, first, which = np.unique((at[rows] << 32) + said[rows], return_index=True, return_inverse=True)
    keeps = np.bincount(which, slots[rows] == at[rows], len(first)) > 0
    heads = rows[first]
    movers = heads[~keeps]
    found = at.copy()
    found[rows] = np.where(keeps, at[heads], slots[heads])[which]
    return found, np.stack([movers, at[movers]], 1)
