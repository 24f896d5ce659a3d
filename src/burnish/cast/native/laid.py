"""A Llama's weights as sampling on a CPU wants them: what reads one input side by side, in the order in which the product reads.

A product of a few rows spends its time on weights: it has to read them, and before that to put them into the order in which its
inner loop goes through them, which every call does anew. MKL can do it once and for all. The copy takes as much memory as the
model, is made when the model first samples, and is renewed when a weight has moved. Without MKL, and in other precisions
than fp32, weights that read one input are laid side by side and multiplied as they are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

ROWS = 64  # the order is made for about this many; products of any number of rows can use it


class Laid:
    """Matrices [out, in] that read one input, ready to be multiplied with. `of` says which, and copies those that have moved."""

    def __init__(self) -> None:
        self.stamp: tuple[tuple[int, int], ...] = ()
        self.like = self.ordered = torch.empty(
            0
        )  # the matrices as one: a tensor of their shape; and as they are multiplied

    def __deepcopy__(self, memo: dict[int, Any]) -> Laid:
        return Laid()  # a copy of the model lays out its own weights

    @torch.no_grad()
    def of(self, *weights: Tensor) -> Laid:
        """These weights, one after the other, as they are now."""
        stamp = tuple((w.data_ptr(), w._version) for w in weights)
        if stamp != self.stamp:
            whole = torch.cat(weights) if len(weights) > 1 else weights[0].detach()
            if whole.dtype == torch.float32 and torch.backends.mkl.is_available():
                self.ordered = torch.ops.mkl._mkl_reorder_linear_weight(whole, ROWS)
                self.like = whole.new_empty(1).expand(whole.shape)  # the operator asks for nothing but its shape
            else:
                self.ordered = self.like = whole
            self.stamp = stamp
        return self

    def times(self, x: Tensor) -> Tensor:
        """[n, out]: x [n, in] times all of them. With MKL a row gets the same bits whatever other rows there are."""
        if not self.ordered.is_mkldnn:
            return x @ self.ordered.t()
        if len(x) == 1:  # a product of one row is another kind of product, which may sum in another order
            return self.times(x.expand(2, -1).contiguous())[:1]
        return torch.ops.mkl._mkl_linear(x, self.ordered, self.like, None, len(x))  # type: ignore[no-any-return]
