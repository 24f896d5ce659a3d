"""Prefill of prompts whose beginnings were computed before with the same weights: only what is new is computed.

A conversation that goes on has a prompt that begins with what the model has read and written already. The activations
of these tokens are in the activation cache; their keys and values are copied from there, and the layers run over the
other tokens alone. The bits are those of a prefill of all tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from burnish.forward.packing import Packed
from burnish.forward.prefix_tree import Numbers, Tree
from burnish.kernels.cpu import build
from burnish.kernels.cpu.activation_cache import NOBODY, ActivationCache, Held
from burnish.kernels.cpu.c_attention import Known, told, views
from burnish.kernels.cpu.c_layer import normed, weights_at, where
from burnish.kernels.cpu.llama import Decoder, Layer

WORTH_IT = 0.25  # of a pack's tokens that are known, from which on only the others are computed


@dataclass(frozen=True)
class NewTokens:
    """The tokens of a pack that are to be computed.

    numbers  [N] the activation-cache id of every token; those of the new ones begin at `first`
    places   where the new ones are in the pack
    tree     the pack's, with a stretch cut where its known tokens end;  known: which stretches are known
    """

    numbers: Tensor
    places: Tensor
    first: int
    tree: Tree
    known: Known

    @property
    def number(self) -> int:
        return len(self.places)


def new_tokens(memory: ActivationCache, rows: Packed) -> NewTokens | None:
    """What a prefill has to compute; None where it is nearly all, or where the cache has no room for it."""
    if rows.tree is None:
        return None
    numbers = memory.known(rows.input_keys, rows.tree)
    places = np.flatnonzero(numbers == NOBODY)
    if len(places) > (1 - WORTH_IT) * len(numbers):
        return None
    before = _before(rows.tree, len(numbers))[places]
    first = memory.take(len(places))
    if first is None:
        return None
    tree, known = _cut(rows.tree, numbers)
    numbers[places] = np.arange(first, first + len(places))
    memory.note(np.where(before >= 0, numbers[before], NOBODY), rows.input_keys.numpy()[places], first)
    return NewTokens(torch.from_numpy(numbers), torch.from_numpy(places), first, tree, known)


def _before(tree: Tree, tokens: int) -> Numbers:
    """[N]: where the token before each one is; -1: it is the first."""
    found = np.arange(-1, tokens - 1)
    for first, _, parent in tree.stretches.tolist():
        found[first] = tree.stretches[parent][1] - 1 if parent >= 0 else -1
    return found


def _cut(tree: Tree, numbers: Numbers) -> tuple[Tree, Known]:
    """The tree with every stretch cut in two where its known tokens end, and which stretches are known."""
    found: list[tuple[int, int, int]] = []
    known: list[bool] = []
    last: list[int] = []  # of each stretch of the tree: the number of its second part, or of its only one
    begins = [0]
    borders = set(tree.begins.tolist())
    for i, (first, end, parent) in enumerate(tree.stretches.tolist()):
        if i and i in borders:
            begins.append(len(found))
        here = first + int((numbers[first:end] != NOBODY).sum())
        parts = [part for part in ((first, here, True), (here, end, False)) if part[0] < part[1]]
        before = last[parent] if parent >= 0 else -1
        for start, stop, is_known in parts:
            found.append((start, stop, before))
            known.append(is_known)
            before = len(found) - 1
        last.append(before)
    return Tree(np.array(found, dtype=np.int64), np.array([*begins, len(found)])), np.array(known, dtype=np.int8)


class Reuse:
    """A pass over the new tokens of a pack, layer by layer."""

    def __init__(self, model: Decoder, shape: build.Shape, new: NewTokens) -> None:
        self.model, self.shape, self.new = model, shape, new

    def states(self, rows: Packed, keep: Callable[[nn.Module, Tensor, Tensor], None]) -> Tensor:
        """[N, H]: the hidden states of all tokens of the pack. keep: takes their keys and values, layer by layer."""
        model, new = self.model, self.new
        memory = model.remembered
        x = model.embed_tokens.weight.detach()[rows.tokens[new.places]]
        angles = model.angles(rows.positions[new.places], 1, new.number, x.dtype) if new.number else None
        for held, layer in zip(memory.layers, model.layers, strict=True):
            assert isinstance(layer, Layer)
            x, found = self._layer(layer, held, x, angles)
            a = layer.self_attn
            k, v = found.view(len(found), -1, a.width)[:, a.heads :].split(a.kv_heads, 1)
            keep(a, k, v)
        if new.number:
            memory.last[new.first : new.first + new.number] = x
        return normed(memory.last.index_select(0, new.numbers), model.norm.weight, model.spec.eps)

    def _layer(
        self, layer: Layer, held: Held, x: Tensor, angles: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, Tensor]:
        """The layer's output for the new tokens, and the queries, keys and values of all."""
        new, shape, run = self.new, self.shape, build.there()
        if angles is None:
            return x, held.found.index_select(0, new.numbers)
        its_x, its_found, its_seen, middle, both = held.part(new.first, new.number)
        its_x.copy_(x)
        between, opened, y = torch.empty_like(x), x.new_empty(len(x), shape.inner), torch.empty_like(x)
        a = layer.self_attn
        weights = layer.input_layernorm.weight, layer.post_attention_layernorm.weight, a.head_norms
        at = build.LayerAt(*weights_at(layer.lay_out(), *weights))
        run.layer_begins(byref(shape), byref(at), *where(*angles, x, its_found, between), len(x))
        found = held.found.index_select(0, new.numbers)
        seen = x.new_empty(len(found), a.heads, a.width)
        given = found.view(len(found), -1, a.width).split([a.heads, a.kv_heads, a.kv_heads], 1)
        run.attend(byref(shape), byref(told(new.tree, len(found), new.known)), views(*given), views(seen))
        torch.index_select(seen.view(len(found), -1), 0, new.places, out=its_seen)
        run.layer_ends(byref(shape), byref(at), *where(x, its_seen, middle, both, y, between, opened), len(x))
        return y, found
