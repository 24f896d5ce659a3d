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


class WideStream:
    """What flows through the layers while rows add a token each: x, and y that is still to be added to it.

    norm  the weight of the norm that comes next;  post: that of y itself, if it has one
    """

    def __init__(self, x: Tensor, norm: Tensor, spec: LayerSpec, exact: bool) -> None:
        self.x = x
        self.y: Tensor | None = None
        self.norm, self.spec, self.exact = norm, spec, exact
        self.post: Tensor | None = None

    def room(self, width: int) -> Tensor:
        """Where rows are written for a product to read."""
        return torch.empty(len(self.x), width, dtype=self.x.dtype, device=self.x.device)

    def _product(self, x: Tensor, weight: Tensor, bias: Tensor | None, adapter: Adapter | None) -> Tensor:
        if adapter is None:
            return product(x, weight, bias, self.exact)
        inner = adapter.begin(x)
        return adapter.finish(product(x, weight, bias, self.exact), inner)

    def normed(self, weight: Tensor, bias: Tensor | None, adapter: Adapter | None = None) -> Tensor:
        """[M, N]: norm(x) weight^T + bias, with an adapter beside it."""
        return self._product(self.end(), weight, bias, adapter)

    def add(self, y: Tensor, weight: Tensor, norm: Tensor, post: Tensor | None, adapter: Adapter | None = None) -> None:
        """x += post(y weight^T); the norm is the one that follows."""
        self.y, self.norm, self.post = self._product(y, weight, None, adapter), norm, post

    def through_mlp(self, layer: Layer, norm: Tensor) -> None:
        """x += post(mlp(norm(x))); the norm is the one that follows."""
        if layer.router is None:
            both = self.normed(layer.gate_and_up, None, layer.adapters.gate_and_up)
            gated = gate(both, None, layer.spec.activation)
            self.add(gated, layer.down, norm, layer.after_mlp, layer.adapters.down)
            return
        weights = layer.router, layer.gate_and_up, layer.down
        y, *_ = experts.forward(self.end(), *weights, layer.spec, self.exact)
        self.y, self.norm, self.post = y, norm, layer.after_mlp

    def end(self) -> Tensor:
        """[M, H]: norm(x)."""
        y, self.y = self.y, None
        return add_norm(self.x, y, self.norm, self.spec.eps, self.x, self.post, self.spec.offset)
