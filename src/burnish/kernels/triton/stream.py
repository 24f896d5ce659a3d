"""A decode step's residual stream where matmuls are the library's: wide decoders, and those whose layers are not
Llama's."""

from __future__ import annotations

import torch
from torch import Tensor

from burnish.kernels.architectures.spec import LayerSpec
from burnish.kernels.triton import experts
from burnish.kernels.triton.adapters import Adapter
from burnish.kernels.triton.cublas import product
from burnish.kernels.triton.gate import gate
from burnish.kernels.triton.norm import add_norm
from burnish.kernels.triton.weights import Layer

OWED_ROWS, OWED_RANK = 512, 64  # most rows, and largest rank, for which the next kernel adds an adapter's part
Owed = tuple[Tensor, Tensor] | None  # inner [M, R] and narrow [R, N], whose product is still to be added


class WideStream:
    """What flows through the layers while rows add a token each: x, and y that is still to be added to it.

    The library adds up in order, however few the rows: so the trainer finds the same bits, and no step takes longer.

    norm  the weight of the norm that comes next;  post: that of y itself, if it has one
    owed  what the adapter of the product that made y still adds to y
    exact  nothing is owed: the library adds what adapters give, as in the trainer's passes
    """

    def __init__(self, x: Tensor, norm: Tensor, spec: LayerSpec, exact: bool = False) -> None:
        self.x, self.exact = x, exact
        self.y: Tensor | None = None
        self.owed: Owed = None
        self.norm, self.spec = norm, spec
        self.post: Tensor | None = None

    def room(self, width: int) -> Tensor:
        """Where rows are written for a product to read."""
        return torch.empty(len(self.x), width, dtype=self.x.dtype, device=self.x.device)

    def _product(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, adapter: Adapter | None
    ) -> tuple[Tensor, Tensor | None]:
        """x weight^T + bias, and x A^T of the adapter where its part is still to be added."""
        if adapter is None:
            return product(x, weight, bias, True), None
        made, inner = adapter.beside(x, weight, bias, self.exact)
        if self.exact or len(x) > OWED_ROWS or adapter.widest > OWED_RANK:  # each row would read all of B again
            return adapter.add(made, inner), None
        return made, inner

    def normed(
        self, weight: Tensor, bias: Tensor | None, adapter: Adapter | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """[M, N]: norm(x) weight^T + bias, and x A^T of the adapter where its part is still to be added."""
        return self._product(self.end(), weight, bias, adapter)

    def add(self, y: Tensor, weight: Tensor, norm: Tensor, post: Tensor | None, adapter: Adapter | None = None) -> None:
        """x += post(y weight^T); the norm is the one that follows."""
        self.y, inner = self._product(y, weight, None, adapter)
        self.owed = None if adapter is None or inner is None else (inner, adapter.narrow)
        self.norm, self.post = norm, post

    def through_mlp(self, layer: Layer, norm: Tensor) -> None:
        """x += post(mlp(norm(x))); the norm is the one that follows."""
        if layer.router is None:
            adapter, x = layer.adapters.gate_and_up, self.end()
            if adapter is None:
                both = product(x, layer.gate_and_up, None, True)
            else:  # too wide for the next kernel: it would read B for every few rows again
                both = adapter.add(*adapter.beside(x, layer.gate_and_up, None, self.exact))
            self.add(gate(both, None, layer.spec.activation), layer.down, norm, layer.after_mlp, layer.adapters.down)
            return
        weights = layer.router, layer.gate_and_up, layer.down
        y, *_ = experts.forward(self.end(), *weights, layer.spec, True)
        self.y, self.norm, self.post = y, norm, layer.after_mlp

    def end(self) -> Tensor:
        """[M, H]: norm(x)."""
        y, owed, self.y, self.owed = self.y, self.owed, None, None
        return add_norm(self.x, y, self.norm, self.spec.eps, self.x, self.post, self.spec.offset, owed)
