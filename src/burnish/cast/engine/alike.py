"""Rows that have read and said the same so far: one of them is computed for all, until they say something different.

Replies to one prompt begin as one: their keys and values, and what they could say next, are the same, bit for bit. What each does say is
drawn by its own noise. Rows that say the same stay together; those that part take a copy of what they have in common along. A step is a
few calls of our kernels for a CPU (cast/native/kernels/rows.c).
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from burnish.cast.blend import Mix
from burnish.cast.engine.decoding import Roots
from burnish.cast.engine.reader import Reader
from burnish.cast.engine.rows import Rows
from burnish.cast.native import compiled
from burnish.cast.native.llama import Llama
from burnish.cast.native.steps import copy_slots, next_logits, rows_at, share

Mask = npt.NDArray[np.bool_]


class Alike:
    """The rows of one call.

    at      [rows] the slot where what a row has read so far lies. It is that of one of the rows that share it.
    read    [rows] the number of what it has read last, kept for the trainer; -1: it is not
    filtered  whether some rows choose among a part of the vocabulary
    """

    def __init__(self, readers: Sequence[Reader], rows: Rows, mix: Mix | None, filtered: bool) -> None:
        self.readers, self.rows, self.mix, self.filtered = readers, rows, mix, filtered
        slots = rows.spare + 1
        self.at, self.read, self.leaders, self.number, mark = np.zeros((5, slots), dtype=np.int64)
        self.moved = np.empty((3, slots), dtype=np.int64)
        self.roots: Roots | None = None
        self.told, run = rows_at(rows, self.at, self.leaders, self.number, mark), compiled.there()
        self.leading, self.say, self.part_rows = run.leading, run.say, run.part

    def enter(self, at: slice, prompts: Sequence[Any], slots: list[int]) -> list[int]:
        """Rows, with their prompts and slots; the slots into which each of the different prompts has to be written."""
        of = dict(zip(reversed(prompts), reversed(slots), strict=True))  # of several slots, the first
        self.at[at] = [of[prompt] for prompt in prompts]
        self.read[at] = [prompt.number for prompt in prompts]
        return [of[prompt] for prompt in dict.fromkeys(prompts)]

    def share(self, roots: Roots) -> None:
        """Which rows look at which root from now on."""
        self.roots = roots  # what the kernels know the place of must not go
        share(self.told, roots)

    def step(self, n: int) -> None:
        """One more token for those of the first n rows that live."""
        leaders = self.leading(byref(self.told), n)
        if not leaders:
            return
        first = self._remembered(leaders, n)
        found = [
            next_logits(cast(Llama, reader.model), reader.store, self.told, leaders, first) for reader in self.readers
        ]
        self.sample(self.mix(found) if self.mix else found[0], slice(0, n), among=True)

    def _remembered(self, leaders: int, n: int) -> int | None:
        """Where what is computed of the leaders is kept for the trainer; None where it is not."""
        memory, which = self.readers[0].memory, self.leaders[:leaders]
        if memory is None:
            return None
        before = self.read[which]
        first: int | None = memory.take(leaders) if before.min() >= 0 else None
        if first is not None:
            memory.note(before, self.rows.views.last[which], first)
        self.read[:n] = -1 if first is None else first + self.number[:n]
        return first

    def sample(self, logits: Tensor, at: slice, among: bool = False) -> None:
        """A token for the rows of a slice, the last ones, from their logits; among: those of the leaders."""
        if self.filtered:
            each = logits[torch.from_numpy(self.number[at])] if among else logits
            self.rows.sample(each, at, self.filtered)
        else:
            logits = logits.float().contiguous()
            of = self.number.ctypes.data if among else None
            self.say(byref(self.told), at.start, at.stop, logits.data_ptr(), logits.shape[1], of)
        self.part(~self.rows.views.done[: at.stop])

    def part(self, alive: Mask, leaving: bool = False) -> None:
        """Rows that no longer say the same get what they have read into slots of their own.

        leaving: and those that lie in the slot of a row that lives no longer
        """
        copies = self.part_rows(
            byref(self.told), len(alive), alive.ctypes.data, leaving, self.moved.ctypes.data, self.moved.shape[1]
        )
        if copies:
            for reader in self.readers:
                copy_slots(cast(Llama, reader.model), reader.store, self.moved, copies)

    def move(self, source: list[int], to: list[int]) -> None:
        """Rows take the places of others."""
        for held in (self.at, self.read):
            held[to] = held[source]
