"""A decoder in few Triton kernels: passes over packs with their gradient, and decode steps.

Both run the same operations in the same order, so that trainer and sampler agree in every bit. What the layers compute
is said by their spec (kernels/architectures); a model without one runs in its own modules. Both write the same keys
and values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from burnish.engine.batch import StepRows
from burnish.engine.kv_cache import KVCache
from burnish.forward.attention import Keeps, Layout
from burnish.kernels.architectures import spec_of
from burnish.kernels.architectures.spec import DecoderSpec, LayerSpec, Rotary
from burnish.kernels.triton.adapters import refresh
from burnish.kernels.triton.weights import DenseRoom, Layer, layers_of

if TYPE_CHECKING:
    from burnish.kernels.triton.late_stream import LateStream
    from burnish.kernels.triton.stream import WideStream

OURS = 2048  # hidden size up to which our own matmuls beat a library's and the kernels around them
OURS_ADAPTED = 1024  # the same for layers with LoRA adapters, which our matmuls compute, too
MOST_RANKS = 128  # of the adapters of one matmul: with more, our programs would read more of A than of their weights
FAR = 1 << 30  # the window of a layer that has none
Table = tuple[Tensor, Tensor]


class FusedDecoder:
    """The decoder under a model's head, in our kernels. Make one with `of`.

    exact  the library's matmuls of a pack add up in order, too, however few its rows; those of a decode step always do
    """

    def __init__(self, inner: Any, spec: DecoderSpec, layers: list[Layer]) -> None:
        self.inner, self.spec, self.layers = inner, spec, layers
        self.embedding: Tensor = inner.embed_tokens.weight
        self.norm: Tensor = inner.norm.weight
        self.exact = False
        self._tables: dict[str | None, Table] = {}
        self.adapters = [adapter for layer in layers for adapter in layer.adapters.all]
        self.room = DenseRoom(self.embedding.dtype) if any(layer.quantised for layer in layers) else None
        self.plain = all(_plain(layer) for layer in spec.layers) and self.room is None
        self.weights_moved()

    @classmethod
    def of(cls, inner: Any) -> FusedDecoder | None:
        """A decoder's own weights, ready for it; None where it has no spec, or where its modules are not what that
        says."""
        spec = spec_of(inner.config.to_dict())
        layers = None if spec is None else layers_of(inner, spec)
        return None if spec is None or layers is None else cls(inner, spec, layers)

    def weights_moved(self) -> None:
        """The weights have changed: refresh what is derived from them."""
        refresh(self.adapters)

    @property
    def late(self) -> bool:
        """Whether norms are divided after the product that reads them, which is then one of ours in a decode step.

        Not with adapters where bits must agree: our matmul adds an adapter's part before it rounds.
        """
        if self.adapters and self.exact:
            return False
        if any(adapter.rank > MOST_RANKS for adapter in self.adapters):
            return False
        return self.plain and self.spec.first.hidden <= (OURS_ADAPTED if self.adapters else OURS)

    def turn(self, rotary: Rotary) -> Table:
        """Cosines and sines [positions, D / 2] of every position, as the model rounds them."""
        if rotary.table not in self._tables:
            positions = torch.arange(self.spec.context, device=self.embedding.device)[None]
            with torch.no_grad():
                which = () if rotary.table is None else (rotary.table,)
                cos, sin = self.inner.rotary_emb(self.embedding, positions, *which)
            half = self.spec.first.head_dim // 2
            self._tables[rotary.table] = cos[0, :, :half].contiguous(), sin[0, :, :half].contiguous()
        return self._tables[rotary.table]

    def embed(self, tokens: Tensor) -> Tensor:
        """[N, H]: what the first layer reads; a scale is rounded as the table is. A padding token gets no gradient."""
        x = nn.functional.embedding(tokens, self.embedding, self.inner.embed_tokens.padding_idx)
        scale = self.spec.embedding_scale
        return x if scale == 1.0 else x * float(torch.tensor(scale, dtype=x.dtype))

    def states(self, x: Tensor, positions: Tensor, layout: Layout, recomputes: bool = False) -> Tensor:
        """[N, H]: the last hidden states of a pack from its input embeddings. layout: a Packed, or prompts being
        read. recomputes: the backward pass computes each layer again, and keeps only what it reads."""
        from burnish.kernels.triton.packed_layer import How, last_norm, over_pack

        packed, keep = layout.packed, layout.keep if isinstance(layout, Keeps) else None
        assert packed is not None and packed.table is not None
        y, post = torch.zeros_like(x), None
        for layer in self.layers:
            spec = layer.spec
            window = 0 if spec.window is None or spec.window >= packed.longest else spec.window
            turn = self.turn(spec.rotary)
            how = How(spec, positions, turn, packed.table, window, packed.long, self.exact, self.late, self.room)
            if recomputes and torch.is_grad_enabled():
                x, y, found = checkpoint(over_pack, layer, x, y, post, how, use_reentrant=False)
            else:
                x, y, found = over_pack(layer, x, y, post, how)
            post = layer.after_mlp
            if keep is not None:
                keep(layer.attention, *found)
        return last_norm(x, y, post, self.norm, self.spec.first.eps, self.spec.first.offset)

    def step(self, rows: StepRows, at: slice, cache: KVCache) -> Tensor:
        """[n, H]: the last hidden states after the newest tokens of the rows of a slice, which is being decoded."""
        from burnish.kernels.triton.decode_attention import attend_one
        from burnish.kernels.triton.kv_write import Newest, Owed, Turn, place
        from burnish.kernels.triton.late_stream import LateStream

        count, root, length, slot = rows.count[at], rows.root[at], rows.root_length[at], rows.slot[at]
        newest, n = Newest(count, length, slot), len(count)
        norms = [*(layer.norm for layer in self.layers), self.norm]
        stream = self._stream(rows.last[at])
        for held, following in zip(self.layers, norms[1:], strict=True):
            layer = held if self.room is None else self.room.dense(held)
            spec, kv = layer.spec, cache.layers[layer.attention]
            own = kv.own_k, kv.own_v
            turn = Turn(*self.turn(spec.rotary), layer.head_norms, spec.eps, spec.offset)
            if isinstance(stream, LateStream) and layer.head_norms is None:
                q = stream.heads(layer.heads, layer.bias, own, newest, turn, layer.adapters.heads)
            else:
                made, inner = stream.normed(layer.heads, layer.bias, layer.adapters.heads)
                heads = made.view(n, -1, 1, spec.head_dim)
                q, k, v = heads.split([spec.heads, spec.kv_heads, spec.kv_heads], 1)
                q = place(q, k, v, *own, newest, turn, Owed.of(layer.adapters.heads, inner, spec))
            seen = attend_one(
                q, *own, kv.pool_k, kv.pool_v, count, root, length, slot,
                spec.scale, spec.window or FAR, rows.spans, rows.together, rows.mates, stream.room(layer.out.shape[1]),
            )  # fmt: skip
            stream.add(seen.flatten(1), layer.out, layer.second_norm, layer.after_attention, layer.adapters.out)
            stream.through_mlp(layer, following)
        return stream.end()

    def _stream(self, tokens: Tensor) -> LateStream | WideStream:
        from burnish.kernels.triton.late_stream import LateStream
        from burnish.kernels.triton.stream import WideStream

        norm, spec = self.layers[0].norm, self.spec.first
        if self.late:
            return LateStream(tokens, self.embedding, norm, spec.eps)
        return WideStream(self.embed(tokens), norm, spec, self.exact)


def _plain(spec: LayerSpec) -> bool:
    """Whether our own matmuls of a decode step know what is around them: a layer like Llama's, with norms of heads or
    without."""
    return spec.activation == "silu" and spec.offset == 0 and not spec.post_norms and spec.experts is None
