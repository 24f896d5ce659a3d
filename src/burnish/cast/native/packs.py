"""Packs of rows as our kernels read them, and attention over one: for models whose layers are not ours."""

from __future__ import annotations

from ctypes import byref
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from burnish.cast.native import compiled
from burnish.cast.packing import Numbers, Packed

WORTH_IT = 0.85  # of the tokens: with more of them in it, a part costs as much as the whole


@dataclass(frozen=True)
class Stretches:
    """A pack as the kernels read it: the borders of its stretches, and where those of each family begin."""

    borders: Numbers
    begins: Numbers

    @classmethod
    def of(cls, packed: Packed) -> Stretches:
        """The root of each family, then its children."""
        assert packed.roots is not None
        roots = np.stack([packed.roots[:-1], packed.roots[1:]], 1)
        if packed.children is None or packed.kids is None:
            return cls(np.ascontiguousarray(roots), np.arange(len(roots) + 1))
        children = np.stack([packed.children[:-1], packed.children[1:]], 1) + packed.n_roots
        of = np.searchsorted(packed.kids, packed.children[:-1], side="right") - 1
        owner = np.concatenate([np.arange(len(roots)), of])
        order = np.argsort(owner, kind="stable")
        begins = np.searchsorted(owner[order], np.arange(len(roots) + 1))
        return cls(np.ascontiguousarray(np.concatenate([roots, children])[order]), begins)

    @classmethod
    def alike(cls, rows: int, length: int) -> Stretches:
        """Rows of one length that see themselves."""
        starts = np.arange(rows) * length
        return cls(np.stack([starts, starts + length], 1), np.arange(rows + 1))

    def with_gradient(self, dy: Tensor) -> tuple[Stretches, Tensor] | None:
        """The stretches through which the gradient dy [N, H] of a layer's output goes on, end to end, and where their tokens are.

        A stretch whose tokens have none passes none on: nobody looks at it but itself, and at a root its children. None
        where (almost) all of them have some.
        """
        loud = np.concatenate([[0], np.cumsum(torch.any(dy, 1).numpy())])
        kept = loud[self.borders[:, 1]] > loud[self.borders[:, 0]]
        some = np.logical_or.reduceat(kept, self.begins[:-1])
        kept[self.begins[:-1]] |= some
        lengths = self.borders[kept, 1] - self.borders[kept, 0]
        if lengths.sum() > WORTH_IT * len(dy):
            return None
        ends = np.cumsum(lengths)
        places = np.arange(lengths.sum()) + np.repeat(self.borders[kept, 0] - (ends - lengths), lengths)
        numbers = np.add.reduceat(kept.astype(np.int64), self.begins[:-1])[some]
        begins = np.concatenate([[0], np.cumsum(numbers)])
        return Stretches(np.stack([ends - lengths, ends], 1), begins), torch.from_numpy(places)

    def told(self, tokens: int) -> compiled.Pack:
        return compiled.Pack(tokens, len(self.begins) - 1, self.begins.ctypes.data, self.borders.ctypes.data)


def stretches_of(packed: Packed) -> Stretches:
    """The same, made once for all layers."""
    if "stretches" not in packed.plans:
        packed.plans["stretches"] = Stretches.of(packed)
    return packed.plans["stretches"]  # type: ignore[no-any-return]


def suits(q: Tensor, v: Tensor, window: int | None) -> bool:
    """Whether attention of these can run in our kernels."""
    run = compiled.kernels() if q.dtype == torch.float32 and q.device.type == "cpu" and window is None else None
    return run is not None and q.shape[-1] == v.shape[-1] and q.shape[-1] % run.columns_of_a_panel() == 0


def attend(q: Tensor, k: Tensor, v: Tensor, packed: Packed, scale: float) -> Tensor:
    """[N, heads, D]: attention over the pack."""
    return _Attend.apply(q, k, v, stretches_of(packed), scale)  # type: ignore[no-any-return]


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, stretches: Stretches, scale: float) -> Tensor:
        q, k, v = map(_side_by_side, (q, k, v))
        out = q.new_empty(q.shape)
        ctx.how = compiled.Shape(0, q.shape[1], k.shape[1], q.shape[2], 0, 0.0, scale), stretches
        ctx.save_for_backward(q, k, v, out)
        run = compiled.kernels()
        assert run is not None
        run.attend(byref(ctx.how[0]), byref(stretches.told(len(q))), _views(q, k, v), _views(out))
        return out

    @staticmethod
    def backward(ctx: Any, d: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        (q, k, v, out), (shape, stretches) = ctx.saved_tensors, ctx.how
        d = _side_by_side(d)
        dq, dk, dv = q.new_empty(q.shape), k.new_zeros(k.shape), v.new_zeros(v.shape)
        run = compiled.kernels()
        assert run is not None
        run.attend_back(byref(shape), byref(stretches.told(len(q))), _views(q, k, v, out, d), _views(dq, dk, dv))
        return dq, dk, dv, None, None


def _side_by_side(x: Tensor) -> Tensor:
    """With the numbers of a head side by side."""
    return x if x.stride(-1) == 1 else x.contiguous()


def _views(*tensors: Tensor) -> Any:
    """Of [N, heads, D] each."""
    return (compiled.View * len(tensors))(*(compiled.View(x.data_ptr(), x.stride(0), x.stride(1)) for x in tensors))
