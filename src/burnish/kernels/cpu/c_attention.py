"""Packs of rows as our kernels read them, and attention over one: for models whose layers are not ours."""

from __future__ import annotations

from ctypes import byref
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from burnish.forward.logprob import WORTH_IT
from burnish.forward.packing import Packed
from burnish.forward.prefix_tree import Tree
from burnish.kernels.cpu import build

Known = npt.NDArray[np.int8]  # of each stretch: 1 where what it sees is known


def told(tree: Tree, tokens: int, known: Known | None = None) -> build.Pack:
    """What the kernels get of a pack; the tree, and which of its stretches are known, must outlive it."""
    flags = None if known is None else known.ctypes.data
    return build.Pack(tokens, len(tree.begins) - 1, tree.begins.ctypes.data, tree.stretches.ctypes.data, flags)


def with_gradient(tree: Tree, dy: Tensor) -> tuple[Tree, Tensor] | None:
    """The stretches through which the gradient dy [N, H] of a layer's output goes on, end to end, and where their
    tokens are.

    A stretch whose tokens have none passes none on, unless one that goes on from it has some: no other stretch attends
    to it.
    None where (almost) all of them have some: then it is so in all layers below, which are not asked again.
    """
    if tree.loud:
        return None
    loud = np.concatenate([[0], np.cumsum(torch.any(dy, 1).numpy())])
    first, end, parent = tree.stretches.T
    kept = loud[end] > loud[first]
    for i in range(len(kept) - 1, -1, -1):
        if kept[i] and parent[i] >= 0:
            kept[parent[i]] = True
    lengths = (end - first)[kept]
    if lengths.sum() > WORTH_IT * len(dy):
        tree.loud.append(True)
        return None
    ends = np.cumsum(lengths)
    places = np.arange(lengths.sum()) + np.repeat(first[kept] - (ends - lengths), lengths)
    number = np.concatenate([[0], np.cumsum(kept)])  # of those that are kept, how many come before each
    parents = np.where(parent < 0, -1, number[parent])[kept]
    begins = np.unique(number[tree.begins])
    return Tree(np.stack([ends - lengths, ends, parents], 1), begins), torch.from_numpy(places)


def suits(q: Tensor, v: Tensor, window: int | None) -> bool:
    """Whether attention of these can run in our kernels."""
    run = build.kernels() if q.dtype == torch.float32 and q.device.type == "cpu" and window is None else None
    return run is not None and q.shape[-1] == v.shape[-1] and q.shape[-1] % run.columns_of_a_panel() == 0


def attend(q: Tensor, k: Tensor, v: Tensor, packed: Packed, scale: float) -> Tensor:
    """[N, heads, D]: attention over the pack."""
    out: Tensor = _Attend.apply(q, k, v, packed.tree, scale)
    return out


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, tree: Tree, scale: float) -> Tensor:
        q, k, v = map(_side_by_side, (q, k, v))
        out = q.new_empty(q.shape)
        ctx.how = build.Shape(0, q.shape[1], k.shape[1], q.shape[2], 0, 0.0, scale), tree
        ctx.save_for_backward(q, k, v, out)
        run = build.there()
        run.attend(byref(ctx.how[0]), byref(told(tree, len(q))), views(q, k, v), views(out))
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (q, k, v, out), (shape, tree) = ctx.saved_tensors, ctx.how
        d = _side_by_side(grads[0])
        dq, dk, dv = q.new_empty(q.shape), k.new_zeros(k.shape), v.new_zeros(v.shape)
        run = build.there()
        run.attend_back(byref(shape), byref(told(tree, len(q))), views(q, k, v, out, d), views(dq, dk, dv))
        return dq, dk, dv, None, None


def _side_by_side(x: Tensor) -> Tensor:
    """With the numbers of a head side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def views(*tensors: Tensor) -> Any:
    """Of [N, heads, D] each."""
    return (build.View * len(tensors))(*(build.View(x.data_ptr(), x.stride(0), x.stride(1)) for x in tensors))
