"""A step of decoding in our own kernels (kernels/rows.c): rows add a token each, in one call from embeddings to logits."""

from __future__ import annotations

from ctypes import Array, addressof, byref
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from torch import Tensor

from burnish.cast.native import compiled
from burnish.cast.native.whole import weights_at, where
from burnish.cast.tree import Numbers

if TYPE_CHECKING:
    from burnish.cast.engine.decoding import Roots
    from burnish.cast.engine.rows import Rows
    from burnish.cast.engine.store import LayerKV, Store
    from burnish.cast.native.llama import Layer, Llama


@dataclass(frozen=True)
class Told:
    """What the kernels are told of a model and its slots; nothing of it moves while rows are written.

    held  what must not go while they know where it lies
    """

    shape: compiled.Shape
    layers: Array[compiled.LayerAt]
    model: compiled.ModelAt
    held: object


def told(model: Llama, store: Store) -> Told:
    """Kept with the slots, until roots are laid out anew."""
    if store.told is None:
        inner, layers = model.model, cast("list[Layer]", list(model.model.layers))
        kept = [cast("LayerKV", layer.self_attn.kv) for layer in layers]
        array = (compiled.LayerAt * len(layers))(*map(_layer, layers, kept))
        roots = 0 if kept[0].roots_v is None else kept[0].roots_v.shape[2]
        turned = inner.turned_to(store.capacity + roots, torch.float32)
        table, head = inner.embed_tokens.weight, model.laid.of(model.lm_head.weight).ordered
        at = compiled.ModelAt(
            addressof(array),
            len(layers),
            store.capacity,
            len(model.lm_head.weight),
            *where(table, inner.norm.weight, head, *turned),
        )
        assert inner.kernels is not None
        store.told = Told(inner.kernels, array, at, turned)
    return cast(Told, store.told)


def _layer(layer: Layer, kv: LayerKV) -> compiled.LayerAt:
    """Where a layer's weights, keys and values lie."""
    norms = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
    weights = weights_at(layer.lay_out(), *norms, layer.self_attn.head_norms)
    return compiled.LayerAt(*weights, *where(kv.own_k, kv.own_v, kv.roots_k, kv.roots_v))


def rows_at(rows: Rows, at: Numbers, leaders: Numbers, *more: Numbers) -> compiled.RowsAt:
    """What the kernels are told of rows: at [rows] the slot where what each has read lies; leaders: those that are computed."""
    its = rows.views
    return compiled.RowsAt(
        *(getattr(its, name).ctypes.data for name in compiled.OF_ROWS),
        its.tokens.shape[1],
        len(its.stops),
        *(x.ctypes.data for x in (at, leaders, *more)),
    )


def share(told: compiled.RowsAt, roots: Roots) -> None:
    """Rows look at these roots from now on."""
    told.family, told.lengths = roots.root.ctypes.data, roots.lengths.data_ptr()
    told.families, told.longest = len(roots.lengths), roots.longest


def next_logits(model: Llama, store: Store, rows: compiled.RowsAt, leaders: int, first: int | None) -> Tensor:
    """[leaders, V]: what each of the rows that lead could say after its newest token, whose key and value are kept.

    first  where what is computed of them is kept for the trainer (cast/native/remembered.py); None: nowhere
    """
    its, memory = told(model, store), model.model.remembered
    logits, run = torch.empty(leaders, its.model.vocabulary), compiled.there()
    kept, last = (None, None) if first is None else (memory.told, memory.last.data_ptr())
    given = byref(its.shape), byref(its.model), byref(rows), leaders
    run.next_logits(*given, kept, last, first or 0, logits.data_ptr())
    return logits


def logits_of_all(model: Llama, store: Store, rows: Rows, n: int, roots: Roots | None) -> Tensor:
    """[n, V]: the same of the first n rows, each in a slot of its own."""
    everyone = np.arange(n)
    its = rows_at(rows, rows.views.slot, everyone)
    if roots is not None:
        share(its, roots)
    return next_logits(model, store, its, n, None)


def copy_slots(model: Llama, store: Store, moved: Numbers, copies: int) -> None:
    """In every layer, what some slots hold goes to others as well: moved [3, ..] from where, to where, how many tokens of each."""
    its = told(model, store)
    places = (row.ctypes.data for row in moved)
    compiled.there().copy_slots(byref(its.shape), its.layers, len(its.layers), store.capacity, copies, *places)
