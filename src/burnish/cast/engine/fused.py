"""A decoding step in eight kernels a layer, four of them matrix products, for the architectures whose layers are built like Llama's.

Any other model decodes through its own modules (cast/engine/reader.py); both write the same keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from burnish.cast.engine.decoding import FAR
from burnish.cast.engine.rows import Rows
from burnish.cast.forward import decoder
from burnish.cast.joint import First

LIKE_LLAMA = ("LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer")
STILL = ("default", "linear", "llama3", "yarn")  # rotations that depend on nothing but the position


@dataclass(frozen=True)
class Layer:
    """The weights of one layer, and the attention module that knows where its keys and values are."""

    attention: nn.Module
    norm: Tensor
    heads: Tensor
    bias: Tensor | None
    head_norms: tuple[Tensor, Tensor] | None
    out: Tensor
    second_norm: Tensor
    gate_and_up: Tensor
    down: Tensor
    window: int


class Fused:
    """A model whose decoding step is ours. Make one with `of`."""

    def __init__(self, model: nn.Module, layers: list[Layer]) -> None:
        from burnish.cast.engine import kernels

        inner = decoder(model)
        config = inner.config
        self.layers, self.inner = layers, inner
        self.table: Tensor = inner.embed_tokens.weight  # type: ignore[union-attr, assignment]
        self.eps = float(config.rms_norm_eps)  # type: ignore[union-attr, arg-type]
        attention = layers[0].attention
        keys: int = config.num_key_value_heads  # type: ignore[union-attr, assignment]
        self.of_heads: tuple[int, int, int] = (config.num_attention_heads, keys, attention.head_dim)  # type: ignore[union-attr, assignment]
        self.scaling: float = attention.scaling  # type: ignore[assignment]
        cos, sin = self._table(config.max_position_embeddings)  # type: ignore[union-attr, arg-type]
        self.turns = [kernels.Turn(cos, sin, layer.head_norms, self.eps) for layer in layers]

    @classmethod
    def of(cls, model: nn.Module) -> Fused | None:
        """The model's own weights, ready for it; None where a layer is not as it must be."""
        inner = decoder(model)
        config = inner.config
        rope = getattr(getattr(inner, "rotary_emb", None), "rope_type", None)
        if rope not in STILL or config.hidden_act != "silu":  # type: ignore[union-attr]
            return None
        found = [_layer(layer) for layer in inner.layers]  # type: ignore[union-attr]
        layers = [layer for layer in found if layer is not None]
        d = layers[0].attention.head_dim if layers else 0
        if len(layers) < len(found) or d < 32 or d & (d - 1):  # type: ignore[operator]
            return None
        return cls(model, layers)

    def _table(self, context: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines [positions, D / 2] of every position, as the model rounds them."""
        positions = torch.arange(context, device=self.table.device)[None]
        cos, sin = self.inner.rotary_emb(self.table, positions)  # type: ignore[operator]
        half = self.of_heads[2] // 2
        return cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous()

    def states(self, rows: Rows, at: slice) -> Tensor:
        """[n, H]: the normalised hidden states after the newest tokens of the rows of a slice."""
        from burnish.cast.engine import kernels, layer_kernels

        count, root, length, slot = rows.count[at], rows.root[at], rows.root_length[at], rows.slot[at]
        n = len(count)
        queries, keys, d = self.of_heads
        linear = nn.functional.linear
        x = nn.functional.embedding(rows.last[at], self.table)
        y: Tensor | None = None  # what is still to be added to x
        for layer, turn in zip(self.layers, self.turns, strict=True):
            kv: Any = layer.attention.kv
            h = layer_kernels.add_norm(x, y, layer.norm, self.eps)
            q, k, v = linear(h, layer.heads, layer.bias).view(n, -1, 1, d).split([queries, keys, keys], 1)
            seen = kernels.attend_one(
                q, k, v, kv.own_k, kv.own_v, kv.pool_k, kv.pool_v, count, root, length, slot, self.scaling, layer.window,
                turn,
            )  # fmt: skip
            y = linear(seen.view(n, -1), layer.out)
            h = layer_kernels.add_norm(x, y, layer.second_norm, self.eps)
            y = linear(layer_kernels.gate(linear(h, layer.gate_and_up)), layer.down)
        return layer_kernels.add_norm(x, y, self.inner.norm.weight, self.eps)  # type: ignore[union-attr, arg-type]


def _layer(layer: nn.Module) -> Layer | None:
    """What a layer like Llama's holds; None where it is another, or where an adapter or a bias changes what it does."""
    if type(layer).__name__ not in LIKE_LLAMA or not type(layer).__module__.startswith("transformers.models."):
        return None
    attention: Any = layer.self_attn
    mlp: Any = layer.mlp
    last = attention.o_proj, mlp.down_proj
    if not all(isinstance(part, First) for part in (attention.q_proj, mlp.gate_proj)):
        return None
    if (
        any(type(part) is not nn.Linear or part.bias is not None for part in last)
        or mlp.gate_proj.joint.bias is not None
    ):
        return None
    norms = (attention.q_norm.weight, attention.k_norm.weight) if hasattr(attention, "q_norm") else None
    joint = attention.q_proj.joint
    return Layer(
        attention, layer.input_layernorm.weight, joint.weight, joint.bias, norms, attention.o_proj.weight,  # type: ignore[union-attr, arg-type]
        layer.post_attention_layernorm.weight, mlp.gate_proj.joint.weight, mlp.down_proj.weight,  # type: ignore[union-attr, arg-type]
        _window(layer) or FAR,
    )  # fmt: skip


def _window(layer: nn.Module) -> int | None:
    """How far back the layer sees. Mistral's layers ask their configuration; Llama's see everything."""
    attention: Any = layer.self_attn
    if type(layer).__name__ == "MistralDecoderLayer":
        return attention.config.sliding_window  # type: ignore[no-any-return]
    return getattr(attention, "sliding_window", None)
