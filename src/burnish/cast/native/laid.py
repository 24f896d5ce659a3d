"""A Llama's weights as sampling on a CPU wants them: transposed, what reads one input side by side, in narrow blocks.

A product with few rows spends its time on reading the weights. Read along the outputs, they stream; with their inputs side by
side, as parameters lie, every call would turn them round first (at 8 rows that takes longer than the product). Blocks are
narrow because long rows of a power of two fall on each other in the cache. The copy takes as much memory as the model, is
made when the model first samples, and is renewed when a weight has moved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from burnish.cast.native.blocks import rotate_, scale_of

if TYPE_CHECKING:
    from burnish.cast.attention import Layout
    from burnish.cast.native.llama import Layer, Llama

BLOCK = 768  # outputs side by side


class Blocks:
    """Matrices of one input, transposed: [in, BLOCK] each. `norm` is the norm's weight before them, taken into the matrices."""

    def __init__(self, *weights: Tensor, norm: Tensor | None = None) -> None:
        self.weights, self.norm = weights, norm
        sizes = [len(w) for w in weights]
        self.width = sum(sizes)
        self.blocks: list[tuple[Tensor, int, int]] = []  # the block, and which outputs it gives
        self.parts: list[tuple[Tensor, Tensor]] = []  # where rows of a weight go
        start = 0
        while start < self.width:
            end = min(start + BLOCK, self.width)
            block = weights[0].new_empty(weights[0].shape[1], end - start)
            self.blocks.append((block, start, end))
            start = end
        begin = 0
        for weight, size in zip(weights, sizes, strict=True):
            for block, start, end in self.blocks:
                low, high = max(start, begin), min(end, begin + size)
                if low < high:
                    self.parts.append(
                        (block[:, low - start : high - start], weight.detach()[low - begin : high - begin])
                    )
            begin += size

    def renew(self) -> None:
        """Copy the weights as they are now."""
        for to, weight in self.parts:
            to.copy_(weight.t())
        if self.norm is not None:
            for block, _, _ in self.blocks:
                block.mul_(self.norm.detach()[:, None])

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


class Laid:
    """All weights of a model, laid out for sampling, and the forward of rows that add one token each."""

    def __init__(self) -> None:
        self.stamp: tuple[tuple[int, int], ...] = ()
        self.layers: list[tuple[Blocks, Blocks, Blocks, Blocks]] = []
        self.head: Blocks | None = None
        self.places: tuple[int, ...] = ()

    def __deepcopy__(self, memo: dict[int, Any]) -> Laid:
        return Laid()  # a copy of the model lays out its own weights

    def up_to_date(self, model: Llama) -> Laid:
        """These weights, renewed if any has moved."""
        parameters = list(model.parameters())
        stamp = tuple((p.data_ptr(), p._version) for p in parameters)
        if stamp != self.stamp:
            with torch.no_grad():
                places = tuple(p.data_ptr() for p in parameters)
                if places != self.places:
                    self._make(model)
                    self.places = places
                for blocks in (blocks for layer in self.layers for blocks in layer):
                    blocks.renew()
                assert self.head is not None
                self.head.renew()
            self.stamp = stamp
        return self

    def _make(self, model: Llama) -> None:
        self.layers = []
        for layer in cast("list[Layer]", model.model.layers):
            a, m = layer.self_attn, layer.mlp
            read = Blocks(a.q_proj.weight, a.k_proj.weight, a.v_proj.weight, norm=layer.input_layernorm.weight)
            inner = Blocks(m.gate_proj.weight, m.up_proj.weight, norm=layer.post_attention_layernorm.weight)
            self.layers.append((read, Blocks(a.o_proj.weight), inner, Blocks(m.down_proj.weight)))
        self.head = Blocks(model.lm_head.weight)

    def states(self, model: Llama, x: Tensor, angles: tuple[Tensor, Tensor], layout: Layout) -> Tensor:
        """[n, H]: the hidden states after all layers; x [n, H] is overwritten."""
        for layer, blocks in zip(cast("list[Layer]", model.model.layers), self.layers, strict=True):
            self._layer(layer, blocks, x, angles, layout)
        return (x * scale_of(x, model.config.rms_norm_eps)).mul_(model.model.norm.weight)

    def _layer(
        self, layer: Layer, blocks: tuple[Blocks, ...], x: Tensor, angles: tuple[Tensor, Tensor], layout: Layout
    ) -> None:
        read, out, inner, down = blocks
        a = layer.self_attn
        turned = a.heads + a.kv_heads
        found = read.times(x * scale_of(x, layer.eps)).unflatten(-1, (-1, a.width))
        rotate_(found[:, :turned], *angles)
        q, k, v = (part[:, :, None] for part in found.split([a.heads, a.kv_heads, a.kv_heads], 1))
        out.add_to(x, layout.attend(a, q, k, v, a.width**-0.5, None).view(len(x), -1))
        gate, up = inner.times(x * scale_of(x, layer.eps)).chunk(2, -1)
        down.add_to(x, torch.nn.functional.silu(gate).mul_(up))
