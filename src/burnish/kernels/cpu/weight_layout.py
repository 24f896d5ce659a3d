"""Weights laid out for matmuls on a CPU: matrices that read one input side by side, in the order in which the matmul
reads them.

A matmul of a few rows spends its time on the weights: it reads them, and before that packs them into the order of its
inner loop, at every call. Here they are packed once, for the C kernels, or without them for MKL. The copy takes as much
memory as the model, is made when the model first samples or learns, and is made again after `weights_moved`. Without
either, and in other precisions than fp32, matrices that read one input are laid side by side and multiplied as they
are.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from burnish.kernels.cpu.build import kernels, there
from burnish.kernels.cpu.c_adapters import Adapter

ROWS = 64  # MKL's order is made for about this many; products of any number of rows can use it


class WeightLayout:
    """Matrices [out, in] that read one input, ready for matmuls. `of` says which, and lays them out if they are stale.

    gated   of two matrices, the gate and what it lets through: the C kernels multiply with both at once
    bias    what is added to their outputs, side by side, if anything is
    laid    the addresses of the matrices that are laid out; None: they are stale
    """

    def __init__(self, gated: bool = False) -> None:
        self.gated = gated
        self.laid: list[int] | None = None
        self.outputs = 0
        self.bias: Tensor | None = None
        self.panels = False  # whether they are laid out for the C kernels
        self.like = self.ordered = torch.empty(
            0
        )  # of MKL: a tensor of their shape; and the weights as they are multiplied

    def __deepcopy__(self, memo: dict[int, Any]) -> WeightLayout:
        return WeightLayout(self.gated)  # a copy of the model lays out its own weights

    def weights_moved(self) -> None:
        """The matrices have changed: lay them out again before the next matmul."""
        self.laid = None

    @torch.no_grad()
    def of(
        self, *weights: Tensor, biases: Sequence[Tensor | None] = (), adapters: Sequence[Adapter | None] = ()
    ) -> WeightLayout:
        """These weights, one after the other, as they are now, with what LoRA adds to them, and their biases: all of
        them have one, or none has."""
        there_are = [bias for bias in biases if bias is not None]
        laid = [w.data_ptr() for w in (*weights, *there_are)]
        if laid != self.laid:
            if any(adapters):
                both = zip(weights, adapters, strict=True)
                weights = tuple(w if adapter is None else adapter.merged(w) for w, adapter in both)
            self.outputs = sum(map(len, weights))
            self.bias = torch.cat(there_are) if there_are else None
            self.panels = (
                weights[0].dtype == torch.float32 and weights[0].device.type == "cpu" and kernels() is not None
            )
            if self.panels:
                self.ordered = _panels(weights, self.gated, self.ordered)
            else:
                self._order(torch.cat(weights) if len(weights) > 1 else weights[0].detach())
            self.laid = laid
        return self

    def _order(self, whole: Tensor) -> None:
        if whole.dtype == torch.float32 and torch.backends.mkl.is_available():
            self.ordered = torch.ops.mkl._mkl_reorder_linear_weight(whole, ROWS)
            self.like = whole.new_empty(1).expand(whole.shape)  # the operator asks for nothing but its shape
        else:
            self.ordered = self.like = whole

    def times(self, x: Tensor) -> Tensor:
        """[n, out]: x [n, in] times all of them. In our order or MKL's, a row gets the same bits whatever other rows
        there are.
        """
        y = self._times(x)
        return y if self.bias is None else y.add_(self.bias)

    def _times(self, x: Tensor) -> Tensor:
        if self.panels and self.gated:  # the C kernels for whole layers do it in one go with what follows
            found, half = torch.einsum("ni,pic->npc", x, self.ordered), self.ordered.shape[2] // 2
            return torch.cat([part.flatten(1)[:, : self.outputs // 2] for part in found.split(half, 2)], 1)
        if self.panels:
            x, y = x.contiguous(), x.new_empty(len(x), self.outputs)
            run = there()
            run.times(x.data_ptr(), self.ordered.data_ptr(), y.data_ptr(), len(x), x.shape[1], self.outputs, None)
            return y
        if not self.ordered.is_mkldnn:
            return x @ self.ordered.t()
        if len(x) == 1:  # a product of one row is another kind of product, which may sum in another order
            return self._times(x.expand(2, -1).contiguous())[:1]
        by_mkl: Tensor = torch.ops.mkl._mkl_linear(x, self.ordered, self.like, None, len(x))
        return by_mkl


@cache
def steady() -> bool:
    """Whether MKL's products give a row the same bits whatever other rows there are: on Intel's processors, and not on
    all others.
    """
    if not torch.backends.mkl.is_available():
        return False
    dice = torch.Generator().manual_seed(0)
    for inputs, outputs in ((64, 64), (96, 48), (256, 704), (704, 256)):
        x, weight = torch.randn(ROWS, inputs, generator=dice), torch.randn(outputs, inputs, generator=dice)
        ordered = torch.ops.mkl._mkl_reorder_linear_weight(weight, ROWS)
        whole = torch.ops.mkl._mkl_linear(x, ordered, weight, None, ROWS)
        for n in (2, 3, 5, 8, 13, 33):
            if not torch.equal(torch.ops.mkl._mkl_linear(x[:n].clone(), ordered, weight, None, n), whole[:n]):
                return False
    return True


def _panels(weights: tuple[Tensor, ...], gated: bool, before: Tensor) -> Tensor:
    """[panels, in, columns of a panel]; of gated ones, half of a panel's columns are the gate's. `before` is written
    again if it fits.
    """
    run = there()
    wide = run.columns_of_a_panel()
    whole = [w.detach().contiguous() for w in weights]
    if not gated and any(len(w) % wide for w in whole[:-1]):
        whole = [torch.cat(whole)]
    outputs, inputs = len(whole[0]) if gated else sum(map(len, whole)), whole[0].shape[1]
    taken = wide // 2 if gated else wide
    shape = (-(-outputs // taken), inputs, wide)
    panels = before if before.shape == shape else torch.empty(shape)
    at = panels.data_ptr()
    for i, w in enumerate(whole):
        run.lay_out(w.data_ptr(), at, len(w), inputs, taken, i * taken if gated else 0)
        at += 0 if gated else 4 * w.numel()
    return panels
