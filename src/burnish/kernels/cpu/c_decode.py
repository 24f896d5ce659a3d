"""A decode step in the C kernels (csrc/rows.c): each row adds a token, in one call from embeddings to logits."""

from __future__ import annotations

from ctypes import Array, addressof, byref
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from burnish.engine.batch import RunningBatch
from burnish.engine.kv_cache import KVCache, LayerKV
from burnish.engine.layouts import Roots
from burnish.forward.prefix_tree import Numbers
from burnish.kernels.cpu import build
from burnish.kernels.cpu.c_layer import weights_at, where

if TYPE_CHECKING:
    from burnish.kernels.cpu.llama import Layer, Llama


@dataclass(frozen=True)
class Addresses:
    """Where a model's weights and its KV cache lie, for the kernels; nothing of it may move while rows are decoded.

    held  keeps alive what only the kernels point to
    """

    shape: build.Shape
    layers: Array[build.LayerAt]
    model: build.ModelAt
    held: object


def addresses_of(llama: Llama, cache: KVCache) -> Addresses:
    """Of a model and its cache, as they are now."""
    inner, layers = llama.model, cast("list[Layer]", list(llama.model.layers))
    kept = [cache.layers[layer.self_attn] for layer in layers]
    array = (build.LayerAt * len(layers))(*map(_layer, layers, kept))
    roots = 0 if kept[0].roots_v is None else kept[0].roots_v.shape[2]
    turned = inner.turned_to(cache.capacity + roots, torch.float32)
    table, head = inner.embed_tokens.weight, llama.laid.of(llama.lm_head.weight).ordered
    at = build.ModelAt(
        addressof(array),
        len(layers),
        cache.capacity,
        len(llama.lm_head.weight),
        len(kept[0].own_v),
        len(turned[0]),
        *where(table, inner.norm.weight, head, *turned),
    )
    assert inner.kernels is not None
    return Addresses(inner.kernels, array, at, turned)


def _layer(layer: Layer, kv: LayerKV) -> build.LayerAt:
    """The addresses of a layer's weights, keys and values."""
    norms = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
    weights = weights_at(layer.lay_out(), *norms, layer.self_attn.head_norms)
    return build.LayerAt(*weights, *where(kv.own_k, kv.own_v, kv.roots_k, kv.roots_v))


def rows_at(batch: RunningBatch, at: Numbers, leaders: Numbers, *more: Numbers) -> build.RowsAt:
    """The batch for the kernels: at [rows] the slot of each row's keys and values; leaders: the rows
    that are computed.
    """
    its = batch.views
    return build.RowsAt(
        *(getattr(its, name).ctypes.data for name in build.OF_ROWS),
        its.tokens.shape[1],
        len(its.stops),
        *(x.ctypes.data for x in (at, leaders, *more)),
    )


def share(rows: build.RowsAt, roots: Roots) -> None:
    """Rows attend to these roots from now on."""
    rows.family, rows.lengths = roots.root.ctypes.data, roots.lengths.data_ptr()
    rows.families, rows.longest = len(roots.lengths), roots.longest


def next_logits(llama: Llama, addresses: Addresses, rows: build.RowsAt, leaders: int, first: int | None) -> Tensor:
    """[leaders, V]: the logits after the newest token of each leader, whose key and value are written to the cache.

    first  the activation-cache id of the first leader's token (kernels/cpu/activation_cache.py); None: they are not
           cached
    """
    memory = llama.model.remembered
    logits, run = torch.empty(leaders, addresses.model.vocabulary), build.there()
    kept, last = (None, None) if first is None else (memory.addresses, memory.last.data_ptr())
    given = byref(addresses.shape), byref(addresses.model), byref(rows), leaders
    wrong = run.next_logits(*given, kept, last, first or 0, logits.data_ptr())
    if wrong >= 0:
        size, room = addresses.model.vocabulary, addresses.model.capacity
        raise ValueError(
            f"row {wrong} of a batch has a token that is not in the model's vocabulary of {size}, or a position "
            f"beyond its KV cache of {room} tokens"
        )
    return logits


def logits_of_all(llama: Llama, addresses: Addresses, batch: RunningBatch, n: int, roots: Roots | None) -> Tensor:
    """[n, V]: the same of the first n rows, each in a slot of its own."""
    everyone = np.arange(n)
    its = rows_at(batch, batch.views.slot, everyone)
    if roots is not None:
        share(its, roots)
    return next_logits(llama, addresses, its, n, None)


def copy_slots(addresses: Addresses, capacity: int, moved: Numbers, copies: int) -> None:
    """In every layer, copy some slots to others: moved [3, ..] from where, to where, how many tokens of each."""
    places = (row.ctypes.data for row in moved)
    build.there().copy_slots(byref(addresses.shape), addresses.layers, len(addresses.layers), capacity, copies, *places)
