"""A decoder whose layers are built like Llama's, in few kernels: passes over packs with their gradient, and decoding steps.

Both go through the same operations in the same order, so that the trainer finds the sampler's numbers again, to the last bit.

    x, y   the residual stream, and what is still to be added to it
    x <- x + y;  h = norm(x);  q, k, v = h Wqkv, rotated;  y = attention(q, k, v) Wo
    x <- x + y;  h = norm(x);  g, u = h Wgu;               y = (silu(g) u) Wd

The backward is written out: it keeps x (twice), the rotated q, k, v, the attention's output and g, u of each layer, and makes
the rest again. Any other model goes through its own modules; both leave the same keys and values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from burnish.cast.joint import First
from burnish.cast.library import product

LIKE_LLAMA = ("LlamaDecoderLayer", "MistralDecoderLayer", "Qwen2DecoderLayer", "Qwen3DecoderLayer")
STILL = ("default", "linear", "llama3", "yarn")  # rotations that depend on nothing but the position
OURS = 2048  # hidden size up to which our own matrix products beat a library's and the kernels around them
FAR = 1 << 30  # the window of a layer that has none


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
    """The decoder under a model's head, in our kernels. Make one with `of`."""

    def __init__(self, inner: nn.Module, layers: list[Layer]) -> None:
        config: Any = inner.config
        attention = layers[0].attention
        self.layers, self.inner = layers, inner
        self.embedding: Tensor = inner.embed_tokens.weight  # type: ignore[union-attr, assignment]
        self.norm: Tensor = inner.norm.weight  # type: ignore[union-attr, assignment]
        self.eps = float(config.rms_norm_eps)
        self.of_heads: tuple[int, int, int] = (
            config.num_attention_heads,
            config.num_key_value_heads,
            attention.head_dim,
        )  # type: ignore[assignment]
        self.scaling: float = attention.scaling  # type: ignore[assignment]
        self.context: int = config.max_position_embeddings
        self.exact = False  # the library's products add up in order, too, however few their rows
        self._turn: tuple[Tensor, Tensor] | None = None

    @classmethod
    def of(cls, inner: nn.Module) -> Fused | None:
        """A decoder's own weights, ready for it; None where a layer is not as it must be."""
        config: Any = inner.config
        rope = getattr(getattr(inner, "rotary_emb", None), "rope_type", None)
        if rope not in STILL or getattr(config, "hidden_act", None) != "silu":
            return None
        found = [_layer(layer) for layer in inner.layers]  # type: ignore[union-attr]
        layers = [layer for layer in found if layer is not None]
        d = layers[0].attention.head_dim if layers else 0
        if len(layers) < len(found) or d < 32 or d & (d - 1):  # type: ignore[operator]
            return None
        return cls(inner, layers)

    @property
    def turn(self) -> tuple[Tensor, Tensor]:
        """Cosines and sines [positions, D / 2] of every position, as the model rounds them."""
        if self._turn is None:
            positions = torch.arange(self.context, device=self.embedding.device)[None]
            with torch.no_grad():
                cos, sin = self.inner.rotary_emb(self.embedding, positions)  # type: ignore[operator]
            half = self.of_heads[2] // 2
            self._turn = cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous()
        return self._turn

    @property
    def reads(self) -> bool:
        """Whether whole packs may be read by it: not where heads are normalised one by one."""
        return all(layer.head_norms is None for layer in self.layers)

    def states(self, x: Tensor, positions: Tensor, layout: Any) -> Tensor:
        """[N, H]: the last hidden states of a pack from its input embeddings. layout: a Packed, or prompts being read."""
        packed, keep = getattr(layout, "packed", layout), getattr(layout, "keep", None)
        y = torch.zeros_like(x)
        for layer in self.layers:
            window = 0 if layer.window >= packed.longest else layer.window
            how = _How(
                positions, self.turn, packed.table, self.of_heads, self.scaling, window, packed.long, self.eps, self.exact
            )  # fmt: skip
            x, y, made = _Layer.apply(  # type: ignore[misc]
                x, y, layer.norm, layer.heads, layer.bias, layer.out, layer.second_norm, layer.gate_and_up, layer.down, how
            )  # fmt: skip
            if keep is not None:
                keep(layer.attention, *made.view(len(x), -1, self.of_heads[2]).split(_parts(self.of_heads), 1)[1:])
        return _Last.apply(x, y, self.norm, self.eps)  # type: ignore[no-any-return]

    def step(self, rows: Any, at: slice) -> Tensor:
        """[n, H]: the last hidden states after the newest tokens of the rows of a slice, which is being decoded."""
        from burnish.cast.engine.kernels import attend_one
        from burnish.cast.engine.placing import Newest, Turn, place
        from burnish.cast.layer_kernels import WideStream
        from burnish.cast.products import Stream

        count, root, length, slot = rows.count[at], rows.root[at], rows.root_length[at], rows.slot[at]
        newest, n, d = Newest(count, length, slot), len(count), self.of_heads[2]
        norms = [*(layer.norm for layer in self.layers), self.norm]
        stream: Stream | WideStream
        if self.embedding.shape[1] <= OURS:
            stream = Stream(rows.last[at], self.embedding, norms[0], self.eps, self.exact)
        else:
            stream = WideStream(rows.last[at], self.embedding, norms[0], self.eps, self.exact)
        for layer, following in zip(self.layers, norms[1:], strict=True):
            kv: Any = layer.attention.kv
            own = kv.own_k, kv.own_v
            turn = Turn(*self.turn, layer.head_norms, self.eps)
            if isinstance(stream, Stream) and layer.head_norms is None:
                q = stream.heads(layer.heads, layer.bias, *own, newest, turn)
            else:
                q, k, v = stream.normed(layer.heads, layer.bias).view(n, -1, 1, d).split(_parts(self.of_heads), 1)
                q = place(q, k, v, *own, newest, turn)
            seen = attend_one(
                q, *own, kv.pool_k, kv.pool_v, count, root, length, slot,
                self.scaling, layer.window, rows.spans, rows.together, rows.mates, stream.room(layer.out.shape[1]),
            )  # fmt: skip
            stream.add(seen.flatten(1), layer.out, layer.second_norm)
            stream.add(stream.gated(layer.gate_and_up), layer.down, following)
        return stream.end()


def _parts(of_heads: tuple[int, int, int]) -> list[int]:
    """How many heads are queries, keys, values."""
    queries, keys, _ = of_heads
    return [queries, keys, keys]


@dataclass(frozen=True)
class _How:
    """What a layer needs besides numbers that have a gradient."""

    positions: Tensor
    turn: tuple[Tensor, Tensor]
    table: Tensor
    of_heads: tuple[int, int, int]
    scaling: float
    window: int
    long: bool
    eps: float
    exact: bool

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        return product(x, weight, bias, self.exact)

    def rotate(
        self, made: Tensor, back: bool = False, divisors: Tensor | None = None, bias: Tensor | None = None
    ) -> None:
        from burnish.cast import layer_kernels

        queries, keys, d = self.of_heads
        layer_kernels.rotate(made, self.positions, *self.turn, queries + keys, d, back, divisors, bias)

    def heads(self, made: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Views [N, heads, D] of queries, keys and values side by side."""
        return made.view(len(made), -1, self.of_heads[2]).split(_parts(self.of_heads), 1)  # type: ignore[return-value]


def _into(
    x: Tensor, y: Tensor, norm: Tensor, total: Tensor, eps: float
) -> tuple[Tensor, Tensor | None]:  # fmt: skip
    """What a product reads for norm(x + y), and what its rows are still to be divided by; x + y is kept in `total`.

    As the sampler has it (`Fused.step`): where its products are ours they are divided after it, else the norm comes before.
    """
    from burnish.cast import layer_kernels

    if x.shape[1] <= OURS:
        return layer_kernels.add_weighted(x, y, norm, eps, total)
    return layer_kernels.add_norm(x, y, norm, eps, total), None


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, y: Tensor, norm: Tensor, heads: Tensor, bias: Tensor | None, out: Tensor,
        second: Tensor, gate_and_up: Tensor, down: Tensor, how: _How,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        from burnish.cast import layer_kernels as kernels
        from burnish.cast import tiled

        x1, x2 = torch.empty_like(x), torch.empty_like(x)
        h, divisors = _into(x, y, norm, x1, how.eps)
        made = how.product(h, heads, bias if divisors is None else None)
        how.rotate(made, divisors=divisors, bias=bias)
        seen, lse = tiled.forward(*how.heads(made), how.table, how.scaling, how.window, how.long)
        h, divisors = _into(x1, how.product(seen.view(len(x), -1), out), second, x2, how.eps)
        both = how.product(h, gate_and_up)
        ctx.save_for_backward(x1, x2, made, seen, lse, both, divisors, norm, heads, out, second, gate_and_up, down)
        ctx.how, ctx.bias = how, bias is not None
        ctx.mark_non_differentiable(made)
        ctx.set_materialize_grads(False)  # nobody wants zeros for it
        return x2, how.product(kernels.gate(both, divisors), down), made

    @staticmethod
    def backward(ctx: Any, gx: Tensor, gy: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        from burnish.cast import layer_kernels as kernels
        from burnish.cast import tiled

        x1, x2, made, seen, lse, both, divisors, norm, heads, out, second, gate_and_up, down = ctx.saved_tensors
        how = ctx.how
        d_both, gated = kernels.gate_backward(both, divisors, gy @ down)
        d_down = gy.t() @ gated
        d_x2, d_second, h = kernels.norm_backward(x2, second, how.eps, d_both @ gate_and_up, gx)
        d_gate_and_up = d_both.t() @ h
        d_seen = d_x2 @ out
        d_out = d_x2.t() @ seen.view(len(x1), -1)
        d_made = torch.empty_like(made)
        q, k, v = how.heads(made)
        tiled.backward(d_seen.view_as(seen), q, k, v, seen, lse, how.table, how.scaling, how.window, how.heads(d_made))
        how.rotate(d_made, back=True)
        d_x1, d_norm, h = kernels.norm_backward(x1, norm, how.eps, d_made @ heads, d_x2)
        d_bias = d_made.sum(0) if ctx.bias else None
        return d_x1, d_x1, d_norm, d_made.t() @ h, d_bias, d_out, d_second, d_gate_and_up, d_down, None


class _Last(torch.autograd.Function):
    """The norm after the last layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, norm: Tensor, eps: float) -> Tensor:
        from burnish.cast import layer_kernels as kernels

        total = torch.empty_like(x)
        out = kernels.add_norm(x, y, norm, eps, total)
        ctx.save_for_backward(total, norm)
        ctx.eps = eps
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        from burnish.cast import layer_kernels as kernels

        total, norm = ctx.saved_tensors
        d_x, d_norm, _ = kernels.norm_backward(total, norm, ctx.eps, grad.contiguous(), torch.zeros_like(total))
        return d_x, d_x, d_norm, None


def _layer(layer: nn.Module) -> Layer | None:
    """What a layer like Llama's holds; None where it is another, or where an adapter or a bias changes what it does."""
    if type(layer).__name__ not in LIKE_LLAMA or not type(layer).__module__.startswith("transformers.models."):
        return None
    attention: Any = layer.self_attn
    mlp: Any = layer.mlp
    if not all(isinstance(part, First) for part in (attention.q_proj, mlp.gate_proj)):
        return None
    last = attention.o_proj, mlp.down_proj
    biased = any(type(part) is not nn.Linear or part.bias is not None for part in last)
    if biased or mlp.gate_proj.joint.bias is not None:
        return None
    if any(size % 8 for size in mlp.down_proj.weight.shape):  # our products copy rows of whole 16 bytes
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
