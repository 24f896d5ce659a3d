"""LoRA in the layers of the C kernels: y = x W^T + scale (x A^T) B^T, with W frozen.

The forward multiplies with W + scale B A, which is laid out like any weight (kernels/cpu/weight_layout.py) and costs
nothing more. In fp32 that sum rounds as an update of W itself would. The backward needs no gradient of W, and computes
those of A and B from small matmuls, so that a training pass takes about two thirds of the matmuls that it takes where
all weights are trained:

    t = d B,   d x += scale t A,   d A = scale t^T x,   d B = scale d^T (x A^T)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn


@dataclass(frozen=True)
class Adapter:
    """The adapter of one matrix: a [rank, in], b [out, rank]."""

    a: nn.Parameter
    b: nn.Parameter
    scale: float

    def merged(self, weight: Tensor) -> Tensor:
        """W + scale B A, in memory of its own."""
        return weight.addmm(self.b, self.a, alpha=self.scale)


Adapters = tuple[Adapter | None, ...]  # of the matrices that read one input; None: a matrix has none


def back_(adapters: Adapters, grad: Tensor, sizes: Sequence[int], d_x: Tensor) -> list[Tensor | None]:
    """Add to d x, in place, what the adapters of matrices with so many outputs give it. grad: of their outputs, side
    by side. Returns t of each, which `grads` needs."""
    found: list[Tensor | None] = []
    for adapter, d in zip(adapters, grad.split(list(sizes), 1), strict=True):
        if adapter is None:
            found.append(None)
            continue
        t = d @ adapter.b
        d_x.addmm_(t, adapter.a, alpha=adapter.scale)
        found.append(t)
    return found


def grads(
    adapters: Adapters, grad: Tensor, sizes: Sequence[int], inner: list[Tensor | None], x: Tensor
) -> list[Tensor | None]:
    """d A and d B of each matrix in turn, None where it has no adapter. inner: what `back_` returned; x: what the
    matrices read."""
    found: list[Tensor | None] = []
    for adapter, d, t in zip(adapters, grad.split(list(sizes), 1), inner, strict=True):
        if adapter is None or t is None:
            found += [None, None]
        else:
            found += [(t.t() @ x).mul_(adapter.scale), (d.t() @ (x @ adapter.a.t())).mul_(adapter.scale)]
    return found
