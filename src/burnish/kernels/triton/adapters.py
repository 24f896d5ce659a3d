"""LoRA adapters beside the matmuls of a layer: y = x W^T + s (x A^T) B^T, with W frozen.

Projections that read one input (queries, keys and values; gate and up) share their first product: the matrices A stand
below each other, and those of B in the blocks of one wide matrix, each in the columns of its own A. These matrices are
derived from the adapters' parameters and refreshed when the parameters have moved (`refresh`); gradients are of the
parameters.

In a decode step, A stands below W in memory (`whole`), so that one product gives both x W^T and x A^T. The kernel that
reads the product adds (x A^T) B^T to it, from B^T in a narrow matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

from burnish.kernels.lora import base_of, plain_adapter
from burnish.kernels.triton.cublas import add_product, product


@dataclass(frozen=True)
class AdapterPart:
    """One projection's adapter: a [r, in], b [out, r], and where its outputs begin among those of the product."""

    a: nn.Parameter
    b: nn.Parameter
    scale: float
    start: int

    @property
    def outputs(self) -> slice:
        return slice(self.start, self.start + len(self.b))


@dataclass(frozen=True)
class Adapter:
    """The adapters of one product.

    a       [R, in]: the matrices A below each other
    wide    [out, R]: the matrices B with their scales, each in the columns of its own A, zeros elsewhere
    narrow  [largest rank, out]: the matrices B^T with their scales side by side; zeros below those of smaller rank
    whole   [out + R, in]: the frozen weights, and `a` behind them; None: they lie elsewhere
    bias    [out + R]: the bias of the product, and zeros; None: it has none
    """

    parts: tuple[AdapterPart, ...]
    a: Tensor
    wide: Tensor
    narrow: Tensor
    whole: Tensor | None = None
    bias: Tensor | None = None

    @classmethod
    def of(cls, projections: list[Any], whole: Tensor | None = None, bias: Tensor | None = None) -> Adapter | None:
        """The adapters of projections that read one input; None where none has any.

        whole: the frozen weights with rows to spare behind them, which `a` may take (kernels/triton/fused_qkv.py)
        """
        parts, start = [], 0
        for one in projections:
            found = plain_adapter(one)
            if found is not None:
                parts.append(AdapterPart(*found, start))
            start += len(base_of(one).weight)
        if not parts:
            return None
        first, rank = parts[0].a, sum(len(part.a) for part in parts)
        wide, narrow = first.new_zeros(start, rank), first.new_zeros(max(len(part.a) for part in parts), start)
        if whole is None or len(whole) != start + rank or whole.dtype != first.dtype:
            a = first.new_empty(rank, first.shape[1])
            return cls(tuple(parts), a.detach(), wide.detach(), narrow.detach())
        longer = None if bias is None else torch.cat([bias.detach(), bias.new_zeros(rank)])
        return cls(tuple(parts), whole[start:], wide.detach(), narrow.detach(), whole, longer)

    @property
    def rank(self) -> int:
        """The ranks of all parts together."""
        return len(self.a)

    @property
    def widest(self) -> int:
        """The largest rank of a part."""
        return max(len(part.a) for part in self.parts)

    def firsts(self, sizes: list[int]) -> list[int]:
        """The row of `a` at which the adapter of each projection begins, for projections of so many outputs; 0 where
        one has none: `wide` has only zeros for it."""
        row, found = 0, {}
        for part in self.parts:
            found[part.start] = row
            row += len(part.a)
        return [found.get(sum(sizes[:i]), 0) for i in range(len(sizes))]

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        """A and B of each part in turn: the order in which `grads` gives their gradients."""
        return tuple(p for part in self.parts for p in (part.a, part.b))

    def blocks(self) -> list[tuple[Tensor, Tensor, float]]:
        """Where each parameter stands in `a` or `wide`, the parameter, and its factor there."""
        found: list[tuple[Tensor, Tensor, float]] = []
        row = 0
        for part in self.parts:
            rank = slice(row, row + len(part.a))
            found += [(self.a[rank], part.a, 1.0), (self.wide[part.outputs, rank], part.b, part.scale)]
            found += [(self.narrow[: len(part.a), part.outputs], part.b.t(), part.scale)]
            row += len(part.a)
        return found

    def inner(self, x: Tensor, exact: bool = False) -> Tensor:
        """[N, R]: x A^T."""
        return product(x, self.a, None, exact)

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None, inner: Tensor, exact: bool = False) -> Tensor:
        """x W^T + bias + s (x A^T) B^T, for many rows.

        The small product comes first: the large one adds to it while its own arithmetic goes on. The other way round,
        the sum would be a kernel that does nothing but read and write the output.

        exact: the other way round, because so a decode step rounds, which has x W^T first
        """
        if exact:
            return self.add(product(x, weight, bias, True), inner)
        made = inner @ self.wide.t() if bias is None else torch.addmm(bias, inner, self.wide.t())
        return made.addmm_(x, weight.t())

    def add(self, made: Tensor, inner: Tensor) -> Tensor:
        """made + s (x A^T) B^T, in place where there are several rows."""
        return add_product(made, inner, self.wide)

    def begin(self, x: Tensor) -> Tensor:
        """x A^T, which a GPU computes beside what follows on this stream. Nothing may read it before `wait`.

        A decode step has few rows: this product takes 5 us of a few multiprocessors' time, and beside the product of
        the frozen weights, which reads all of them, it takes next to none.
        """
        if not x.is_cuda:
            return x @ self.a.t()
        inner = torch.empty(len(x), len(self.a), dtype=x.dtype, device=x.device)
        side = _side_stream(x.device)
        side.wait_stream(torch.cuda.current_stream(x.device))
        with torch.cuda.stream(side):
            torch.mm(x, self.a.t(), out=inner)
        return inner

    def wait(self, inner: Tensor) -> None:
        """What follows on this stream may read what `begin` returned."""
        if inner.is_cuda:
            torch.cuda.current_stream(inner.device).wait_stream(_side_stream(inner.device))

    def beside(self, x: Tensor, weight: Tensor, bias: Tensor | None, exact: bool = False) -> tuple[Tensor, Tensor]:
        """x W^T + bias and x A^T, for few rows: one product, where A stands behind the weights."""
        if self.whole is not None:
            made, inner = product(x, self.whole, self.bias, True).split([len(weight), self.rank], 1)
            return made, inner
        if exact:
            return product(x, weight, bias, True), self.inner(x, True)
        inner = self.begin(x)
        made = product(x, weight, bias, True)
        self.wait(inner)
        return made, inner

    def back(self, grad: Tensor) -> Tensor:
        """d (x A^T), which `grads` needs, and of which `d_input` makes what the adapters give to d x."""
        return grad @ self.wide

    def d_input(self, grad: Tensor, weight: Tensor, d_inner: Tensor) -> Tensor:
        """d x: grad W + d (x A^T) A. d_inner: what `back` returned."""
        return (d_inner @ self.a).addmm_(grad, weight)

    def grads(self, grad: Tensor, d_inner: Tensor, x: Tensor, inner: Tensor) -> list[Tensor]:
        """The gradients of `parameters`. d_inner: what `back` returned; x: what the product read; inner: x A^T."""
        d_a, found, row = d_inner.t() @ x, [], 0
        for part in self.parts:
            rank = slice(row, row + len(part.a))
            d_b = grad[:, part.outputs].t() @ inner[:, rank]
            found += [d_a[rank], d_b if part.scale == 1.0 else d_b * part.scale]
            row += len(part.a)
        return found


@cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)


@dataclass(frozen=True)
class LayerAdapters:
    """The adapters of a layer's four products; None: the product has none."""

    heads: Adapter | None = None
    out: Adapter | None = None
    gate_and_up: Adapter | None = None
    down: Adapter | None = None
    all: tuple[Adapter, ...] = field(init=False)

    def __post_init__(self) -> None:
        found = (self.heads, self.out, self.gate_and_up, self.down)
        object.__setattr__(self, "all", tuple(adapter for adapter in found if adapter is not None))

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        return tuple(p for adapter in self.all for p in adapter.parameters)


@torch.no_grad()
def refresh(adapters: list[Adapter]) -> None:
    """Bring the derived matrices up to date with the parameters."""
    blocks = [block for adapter in adapters for block in adapter.blocks()]
    if not blocks:
        return
    torch._foreach_copy_([place for place, _, _ in blocks], [p for _, p, _ in blocks])
    for factor in {factor for _, _, factor in blocks if factor != 1.0}:
        torch._foreach_mul_([place for place, _, its in blocks if its == factor], factor)
