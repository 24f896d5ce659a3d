"""Which packs are worth a CUDA graph: few sizes are captured, packs are padded to them, and the oldest gives way."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from burnish.forward.packing import NONE, Packed
from burnish.forward.runner import ModelRunner

SIZES = 4  # graphs that are kept
LARGEST = 1 << 17  # tokens; longer packs keep the device busy without a graph
AFTER = 1  # how often a size is asked for in vain before it is captured
WASTE = 3  # packs of a size that a larger graph may compute in vain before a smaller one is captured
_log = logging.getLogger("burnish")


class StaticPack:
    """A pack at fixed addresses, which a CUDA graph reads. layout: the pack as the graph's pass sees it."""

    def __init__(self, packed: Packed) -> None:
        assert packed.table is not None
        self.tokens, self.positions, self.table = packed.tokens.clone(), packed.positions.clone(), packed.table.clone()
        self.layout = Packed(self.tokens, self.positions, packed.bound, lambda: NONE, NONE, True, table=self.table)

    def hidden(self, runner: ModelRunner) -> Tensor:
        """[N, H]: the last hidden states of its tokens."""
        return runner.hidden(self.tokens[None], self.positions[None], self.layout)[0]

    def fill(self, packed: Packed) -> None:
        """Another pack of this size takes its place."""
        assert packed.table is not None
        self.tokens.copy_(packed.tokens)
        self.positions.copy_(packed.positions)
        self.table.copy_(packed.table)


class Captured(Protocol):
    """A graph of packs of one size. layout: the pack that it was captured with."""

    layout: Packed


G = TypeVar("G", bound=Captured)


def size_for(tokens: int) -> int:
    """The captured size that serves so many tokens: a thirty-second too large at most (but 128 tokens), so that few
    sizes serve all packs.
    """
    step = max(128, 1 << max(0, tokens - 1).bit_length() >> 6)
    return -(-tokens // step) * step


class SizedGraphs(Generic[G]):
    """The CUDA graphs of one kind of pass of one model.

    what    the kind of pass, for a warning
    kept    by size
    wasted  by size of a graph: tokens that it computed for nothing
    off     whether a capture has failed
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.asked: dict[int, int] = {}
        self.wasted: dict[int, int] = {}
        self.kept: OrderedDict[int, G] = OrderedDict()
        self.memory: Any = None
        self.off = False

    def size(self, tokens: int) -> int | None:
        """The size to replay or to capture; None where it was not asked for often enough."""
        size = size_for(tokens)
        if size > LARGEST or size in self.kept:
            return size if size in self.kept else None
        self.asked[size] = self.asked.get(size, 0) + 1
        larger = min((kept for kept in self.kept if kept > size), default=None)
        if larger is not None:
            self.wasted[larger] = self.wasted.get(larger, 0) + larger - size
            if self.wasted[larger] <= WASTE * size:
                return larger
            self.wasted[larger] = 0
            return size if larger <= 1.25 * size else size_for(size + size // 8)  # the next are about as large
        return size if self.asked[size] > AFTER else None

    def graph(self, size: int, packed: Packed, capture: Callable[[Any], G]) -> G | None:
        """The graph of a size, captured if there is none that serves. After a failed capture, passes run without
        graphs.

        capture: makes one with its memory in a pool that all graphs share
        """
        if size in self.kept and packed.long and not self.kept[size].layout.long:
            del self.kept[size]
        if size not in self.kept:
            if len(self.kept) >= SIZES:
                oldest, _ = self.kept.popitem(last=False)
                self.asked.pop(oldest, None)
                self.wasted.pop(oldest, None)
            if self.memory is None:
                self.memory = torch.cuda.graph_pool_handle()
            try:
                self.kept[size] = capture(self.memory)
            except torch.OutOfMemoryError:
                raise
            except RuntimeError as why:  # another thread was using the device, or a kernel cannot be captured
                reason = str(why).splitlines()[0]
                _log.warning("%s run without CUDA graphs, which is slower: %s", self.what, reason)
                self.off = True
                return None
        self.kept.move_to_end(size)
        return self.kept[size]
