"""Decode identical rows once, and fork them when their samples differ.

Samples of one prompt begin as one: their keys and values, and their logits, are the same bits. What each samples
depends on its own noise. Rows that sample the same stay together; those that part take a copy of the keys and values
that they have in common. A step is a few calls of the C kernels (csrc/rows.c).
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from burnish.engine.batch import RunningBatch
from burnish.engine.layouts import Roots
from burnish.engine.mixture import Mix
from burnish.engine.request import Prompt
from burnish.engine.sampling import require_chosen
from burnish.engine.strategy import Call, DecodeStrategy
from burnish.kernels.cpu import build
from burnish.kernels.cpu.c_decode import copy_slots, next_logits, rows_at, share
from burnish.kernels.cpu.decoder import CDecoder
from burnish.kernels.cpu.runner import LlamaRunner

Mask = npt.NDArray[np.bool_]


class SharedDecode:
    """The rows of one call.

    at      [rows] the slot of each row's keys and values: its own, or that of a row with the same tokens
    read    [rows] the activation-cache id of its newest token; -1: not cached
    filtered  whether some rows sample from a part of the vocabulary
    """

    def __init__(self, decoders: Sequence[CDecoder], batch: RunningBatch, mix: Mix | None, filtered: bool) -> None:
        self.decoders, self.batch, self.mix, self.filtered = decoders, batch, mix, filtered
        slots = batch.spare + 1
        self.at, self.read, self.leaders, self.number, mark = np.zeros((5, slots), dtype=np.int64)
        self.moved = np.empty((3, slots), dtype=np.int64)
        self.roots: Roots | None = None
        self.rows, run = rows_at(batch, self.at, self.leaders, self.number, mark), build.there()
        self.leading, self.say, self.part_rows = run.leading, run.say, run.part

    def enter(self, at: slice, prompts: Sequence[Prompt], slots: list[int]) -> list[int]:
        """Rows enter with their prompts and slots; the slots into which each of the different prompts has to be
        written.
        """
        of = dict(zip(reversed(prompts), reversed(slots), strict=True))  # of several slots, the first
        self.at[at] = [of[prompt] for prompt in prompts]
        self.read[at] = [prompt.number for prompt in prompts]
        return [of[prompt] for prompt in dict.fromkeys(prompts)]

    def share(self, roots: Roots) -> None:
        """Rows attend to these roots from now on."""
        self.roots = roots  # keeps alive what the kernels point to
        share(self.rows, roots)

    def step(self, n: int) -> None:
        """One more token for those of the first n rows that are not done."""
        leaders = self.leading(byref(self.rows), n)
        if not leaders:
            return
        first = self._remembered(leaders, n)
        logits = [next_logits(d.llama, d.addresses, self.rows, leaders, first) for d in self.decoders]
        self.sample(self.mix(logits) if self.mix else logits[0], slice(0, n), among=True)

    def _remembered(self, leaders: int, n: int) -> int | None:
        """The activation-cache id of the first leader's token; None where they are not cached."""
        memory, which = self.decoders[0].memory, self.leaders[:leaders]
        if memory is None:
            return None
        before = self.read[which]
        first = memory.take(leaders) if before.min() >= 0 else None
        if first is not None:
            memory.note(before, self.batch.views.last[which], first)
        self.read[:n] = -1 if first is None else first + self.number[:n]
        return first

    def sample(self, logits: Tensor, at: slice, among: bool = False) -> None:
        """A token for the rows of a slice, the last ones, from their logits; among: the logits are those of the
        leaders.
        """
        if self.filtered:
            each = logits[torch.from_numpy(self.number[at])] if among else logits
            self.batch.sample(each, at, self.filtered)
        else:
            logits = logits.float().contiguous()
            of = self.number.ctypes.data if among else None
            require_chosen(self.say(byref(self.rows), at.start, at.stop, logits.data_ptr(), logits.shape[1], of))
        self.part(~self.batch.views.done[: at.stop])

    def part(self, alive: Mask, leaving: bool = False) -> None:
        """Rows whose newest tokens differ get their keys and values into slots of their own.

        leaving: and so do rows whose keys and values lie in the slot of a row that is gone
        """
        copies = self.part_rows(
            byref(self.rows), len(alive), alive.ctypes.data, leaving, self.moved.ctypes.data, self.moved.shape[1]
        )
        if copies:
            for decoder in self.decoders:
                copy_slots(decoder.addresses, decoder.cache.capacity, self.moved, copies)

    def move(self, source: list[int], to: list[int]) -> None:
        """Rows take the places of others."""
        for held in (self.at, self.read):
            held[to] = held[source]


class SharedDecodeStrategy(DecodeStrategy):
    """All models run in the C kernels: identical rows are decoded once, and a done row costs nothing."""

    by_slot = True
    decoders: list[CDecoder]

    def __init__(self, call: Call) -> None:
        super().__init__(call)
        self.alike = SharedDecode(self.decoders, self.batch, call.mix, call.filtered)
        if len(call.runners) == 1 and call.engine.remembers:
            self.decoders[0].remember(call.tokens)

    def allocate(self, stops: tuple[int, ...]) -> tuple[list[CDecoder], RunningBatch]:
        decoders = [CDecoder(runner, self.plan) for runner in self.call.runners if isinstance(runner, LlamaRunner)]
        return decoders, RunningBatch(self.plan.slots, self.plan.capacity, stops, self.device)

    def shares_prompts(self) -> bool:
        """Also where log-probs must be exact: the kernels give a row the same bits either way."""
        return self.worth_sharing()

    def step(self, n: int) -> None:
        self.alike.step(n)

    def sample(self, logits: Tensor, at: slice) -> None:
        self.alike.sample(logits, at)

    def enter(self, at: slice, prompts: list[Prompt], slots: list[int]) -> None:
        first = self.mixed([torch.stack([p.after[k] for p in prompts]) for k in range(len(self.decoders))])
        into = self.alike.enter(at, prompts, slots)
        if not self.shared:
            self.copy_prompts(list(dict.fromkeys(prompts)), into)
        self.sample(first, at)

    def worth_collecting(self, n: int, queued: bool, listening: bool, watched: bool) -> int:
        """A done row costs nothing, unless only the search for stop strings knows that it is done."""
        return 1 if queued or listening or watched else n

    def close_up(self, rows: int, living: list[int], moving: list[int], empty: list[int]) -> None:
        self.alike.part(np.isin(np.arange(rows), living), leaving=True)  # no row may depend on a slot that becomes free
        super().close_up(rows, living, moving, empty)
        self.alike.move(moving, empty)

    def move(self, source: Tensor, to: Tensor) -> None:
        """Rows keep their slots: only their state moves."""
        self.batch.move(source, to)

    def regroup(self, prompts: list[Prompt], limits: list[int]) -> None:
        super().regroup(prompts, limits)
        if self.roots is not None and prompts:
            self.alike.share(self.roots)
