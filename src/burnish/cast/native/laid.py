"""A Llama's weights as sampling on a CPU wants them: transposed, what reads one input side by side, in narrow blocks.

A product with few rows spends its time on reading the weights. Read along the outputs, they stream; with their inputs side by
side, as parameters lie, every call would turn them round first (at 8 rows that takes longer than the product). Blocks are
narrow because long rows of a power of two fall on each other in the cache. The copy takes as much memory as the model, is
made when the model first samples, and is renewed when a weight has moved.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

BLOCK = 768  # outputs side by side


class Blocks:
    """Matrices of one input, transposed: [in, BLOCK] each. `of` says which, and copies those that have moved."""

    def __init__(self) -> None:
        self.stamp: tuple[tuple[int, int], ...] = ()
        self.width = 0
        self.blocks: list[tuple[Tensor, int, int]] = []  # the block, and which outputs it gives

    def __deepcopy__(self, memo: dict[int, Any]) -> Blocks:
        return Blocks()  # a copy of the model lays out its own weights

    @torch.no_grad()
    def of(self, *weights: Tensor, norm: Tensor | None = None) -> Blocks:
        """These weights [out, in], one after the other, as they are now. norm: the norm's weight before them, taken in."""
        watched = weights if norm is None else (*weights, norm)
        stamp = tuple((w.data_ptr(), w._version) for w in watched)
        if stamp != self.stamp:
            self._make_room(weights)
            self._copy(weights)
            if norm is not None:
                for block, _, _ in self.blocks:
                    block.mul_(norm[:, None])
            self.stamp = stamp
        return self

    def _make_room(self, weights: tuple[Tensor, ...]) -> None:
        width, like = sum(map(len, weights)), weights[0]
        if self.blocks and self.width == width and self.blocks[0][0].dtype == like.dtype:
            return
        ends = [min(start + BLOCK, width) for start in range(0, width, BLOCK)]
        self.width = width
        self.blocks = [(like.new_empty(like.shape[1], end - k * BLOCK), k * BLOCK, end) for k, end in enumerate(ends)]

    def _copy(self, weights: tuple[Tensor, ...]) -> None:
        begin = 0
        for weight in weights:
            for block, start, end in self.blocks:
                low, high = max(start, begin), min(end, begin + len(weight))
                if low < high:
                    block[:, low - start : high - start].copy_(weight[low - begin : high - begin].t())
            begin += len(weight)

    def times(self, x: Tensor) -> Tensor:
        """[n, width]: x [n, in] times all of them."""
        if len(self.blocks) == 1:
            return x @ self.blocks[0][0]
        out = x.new_empty(len(x), self.width)
        for block, start, end in self.blocks:
            torch.mm(x, block, out=out[:, start:end])
        return out

    def add_to(self, y: Tensor, x: Tensor) -> None:
        """y += x times all of them."""
        for block, start, end in self.blocks:
            y[:, start:end].addmm_(x, block)
