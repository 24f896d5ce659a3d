"""Attention over packed rows on a CPU in torch; prefixes that several rows share are computed once, forward and
backward.

A token attends to the stretches that lead to its own, and to its own up to itself. Stretches are cut into blocks of
queries; the keys of a block are those that lead to it, and its own stretch's up to its end. Blocks of about one size
are gathered side by side and computed together as batched matmuls (`AttentionPart`), few enough that their scores
stay in the processor's cache:

    s = q k^T * scale + mask,   p = softmax(s),   o = p v
    dv = p^T do,   ds = p (do v^T - do o),   dq = ds k * scale,   dk = ds^T q * scale

The backward recomputes p. A key's gradient is the sum over the blocks that attended to it, taken in a fixed order.

Tensors are [N, heads, D].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from burnish.forward.accelerate import kernels
from burnish.forward.autograd import Context
from burnish.forward.packing import Packed
from burnish.forward.prefix_tree import Numbers, Tree

QUERIES = 128  # of one stretch, computed together
SCORES = 1 << 20  # numbers that a part's scores may have (one block always fits)
FEWEST_QUERIES, FEWEST_KEYS = 8, 16  # of a matmul, in sampling too: smaller ones sum in another order
PADDED = 1.5  # how much larger than what is asked for a part may be


def attend(q: Tensor, k: Tensor, v: Tensor, packed: Packed, scale: float, window: int | None) -> Tensor:
    """[N, heads, D]: attention over the pack. window: how many tokens back a token sees, itself included."""
    window = window if window is not None and window < packed.longest else None
    if window is not None and packed.shared:
        raise ValueError("rows that share a beginning are longer than the model's window; pack them unshared")
    fast = kernels()
    by_kernel = None if fast is None else fast.packed_attention(q, k, v, packed, scale, window)
    if by_kernel is not None:
        return by_kernel
    how = q.shape[1], k.shape[1], window
    if how not in packed.plans:
        packed.plans[how] = _plan(packed, *how)
    return _attend(q, k, v, packed.plans[how], scale)


@dataclass(frozen=True)
class AttentionPart:
    """Blocks that are computed together, each once for every head of the keys: B of them. Lines are those of [N x
    heads, D].

    q, k   [B, queries x those that share keys], [B, keys]: the lines of their queries and keys; padding points at a
           real one
    extra  [B, queries x those that share keys, 1] bool: queries that are padding
    mask   [blocks, 1, queries, 1, keys]: -inf where a query must not attend
    at     its queries and its keys among those of all parts
    """

    q: Tensor
    k: Tensor
    extra: Tensor
    mask: Tensor
    at: tuple[slice, slice]


@dataclass(frozen=True)
class Plan:
    """A pack's parts. back: of each query's line, its place among those of all parts; `places` from `begins` on: of
    each key's.
    """

    parts: list[AttentionPart]
    back: Tensor
    places: Tensor
    begins: Tensor


class _AttendContext(Context, Protocol):
    how: tuple[Plan, float]


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _AttendContext, q: Tensor, k: Tensor, v: Tensor, plan: Plan, scale: float) -> Tensor:
        ctx.how = plan, scale
        all_q, all_k, all_v = (x.reshape(-1, x.shape[-1]) for x in (q, k, v))
        wide = all_v.new_empty(plan.parts[-1].at[0].stop, v.shape[-1])
        for part in plan.parts:
            p = _chances(_lines(all_q, part.q).mul_(scale), _lines(all_k, part.k), part)
            torch.bmm(p, _lines(all_v, part.k), out=wide[part.at[0]].view(*part.q.shape, -1))
        out = wide.index_select(0, plan.back).view(*q.shape[:2], -1)
        ctx.save_for_backward(q, k, v, out)
        return out

    @staticmethod
    def backward(ctx: _AttendContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (q, k, v, out), (plan, scale), (grad,) = ctx.saved_tensors, ctx.how, grads
        all_q, all_k, all_v, all_d, all_o = (x.reshape(-1, x.shape[-1]) for x in (q, k, v, grad, out))
        along = torch.linalg.vecdot(all_d, all_o)[:, None]
        queries, keys = (part.stop for part in plan.parts[-1].at)
        wide_q, wide_k, wide_v = (
            all_q.new_empty(queries, q.shape[-1]),
            *(x.new_empty(keys, x.shape[-1]) for x in (k, v)),
        )
        for part in plan.parts:
            queries_here, others = _lines(all_q, part.q).mul_(scale), _lines(all_k, part.k)
            d, mean = (_lines(x, part.q).masked_fill_(part.extra, 0) for x in (all_d, along))
            p = _chances(queries_here, others, part)
            torch.bmm(p.transpose(1, 2), d, out=wide_v[part.at[1]].view(*part.k.shape, -1))
            dp = torch.bmm(d, _lines(all_v, part.k).transpose(1, 2))
            ds = dp.sub_(mean).mul_(p)  # torch's own operator for it gives other bits with other numbers of threads
            torch.bmm(ds, others, out=wide_q[part.at[0]].view(*part.q.shape, -1))
            torch.bmm(ds.transpose(1, 2), queries_here, out=wide_k[part.at[1]].view(*part.k.shape, -1))
        dq = wide_q.index_select(0, plan.back).mul_(scale)
        dk, dv = (_sums(x, plan.places, plan.begins) for x in (wide_k, wide_v))
        return dq.view(q.shape), dk.view(k.shape), dv.view(v.shape), None, None


_attend: Callable[[Tensor, Tensor, Tensor, Plan, float], Tensor] = _Attend.apply


def _lines(x: Tensor, which: Tensor) -> Tensor:
    """x[which]: whole lines are copied at once, which takes half as long as indexing."""
    return x.index_select(0, which.flatten()).view(*which.shape, -1)


def _chances(q: Tensor, k: Tensor, part: AttentionPart) -> Tensor:
    """[B, queries, keys]: how much of each key a query takes."""
    scores = torch.bmm(q, k.transpose(1, 2))
    blocks, _, queries, _, keys = part.mask.shape
    scores.view(blocks, -1, queries, q.shape[1] // queries, keys).add_(part.mask)
    return torch.softmax(scores, -1)


def _sums(wide: Tensor, places: Tensor, begins: Tensor) -> Tensor:
    """Of each run of places, the sum of the lines there."""
    sums: Tensor = torch.ops.aten._embedding_bag_forward_only(wide, places, begins)[0]
    return sums


def _plan(packed: Packed, heads: int, kv_heads: int, window: int | None) -> Plan:
    """The parts of a pack, their padding and their masks: made once for all layers."""
    parts: list[AttentionPart] = []
    positions, group = packed.positions.numpy(), heads // kv_heads
    ends = [0, 0]
    shown: tuple[list[Numbers], list[Numbers]] = ([], [])  # the lines that the parts' queries and keys are; -1: padding
    assert packed.tree is not None
    for some in _alike(_blocks(packed.tree), heads):
        q, real_q, k, real_k = _padded(some, packed.tree.paths, -(-FEWEST_QUERIES // group))
        hidden = (positions[k][:, None] > positions[q][:, :, None]) | ~real_k[:, None]
        if window is not None:
            hidden |= positions[k][:, None] <= positions[q][:, :, None] - window
        mask = torch.zeros(hidden.shape).masked_fill_(torch.from_numpy(hidden), -torch.inf)
        own, shared = np.arange(heads).reshape(1, kv_heads, 1, group), np.arange(kv_heads).reshape(1, kv_heads, 1)
        lines_q = (q[:, None, :, None] * heads + own).reshape(len(q) * kv_heads, -1)
        lines_k = (k[:, None] * kv_heads + shared).reshape(len(k) * kv_heads, -1)
        wide_q = np.broadcast_to(real_q[:, None, :, None], (*q.shape[:1], kv_heads, q.shape[1], group)).reshape(
            lines_q.shape
        )
        wide_k = np.broadcast_to(real_k[:, None], (len(k), kv_heads, k.shape[1])).reshape(lines_k.shape)
        at = slice(ends[0], ends[0] + lines_q.size), slice(ends[1], ends[1] + lines_k.size)
        ends = [at[0].stop, at[1].stop]
        extra = torch.from_numpy(~wide_q)[..., None]
        parts.append(
            AttentionPart(torch.from_numpy(lines_q), torch.from_numpy(lines_k), extra, mask[:, None, :, None], at)
        )
        for lines, real, places in ((lines_q, wide_q, shown[0]), (lines_k, wide_k, shown[1])):
            places.append(np.where(real, lines, -1).ravel())
    back, _ = _places(np.concatenate(shown[0]), len(positions) * heads)
    return Plan(parts, back, *_places(np.concatenate(shown[1]), len(positions) * kv_heads))


def _places(shown: Numbers, lines: int) -> tuple[Tensor, Tensor]:
    """Where each line is shown, line after line, and where the places of each begin."""
    order = np.argsort(shown, kind="stable")
    order = order[np.searchsorted(shown[order], 0) :]
    return torch.from_numpy(order), torch.from_numpy(np.searchsorted(shown[order], np.arange(lines)))


@dataclass(frozen=True)
class _Blocks:
    """Queries start .. end of stretch number `of`, which begins at `own`, after `before` tokens that lead to it:
    [blocks] each.
    """

    start: Numbers
    end: Numbers
    own: Numbers
    of: Numbers
    before: Numbers

    def __getitem__(self, which: Numbers) -> _Blocks:
        return _Blocks(*(getattr(self, f.name)[which] for f in fields(self)))

    @property
    def queries(self) -> Numbers:
        return self.end - self.start

    @property
    def keys(self) -> Numbers:
        return self.before + self.end - self.own


def _blocks(tree: Tree) -> _Blocks:
    """The stretches, cut."""
    cut = [
        (at, min(at + QUERIES, end), first, i, len(tree.paths[i]))
        for i, (first, end, _) in enumerate(tree.stretches.tolist())
        for at in range(first, end, QUERIES)
    ]
    return _Blocks(*np.array(cut, dtype=np.int64).T)


def _alike(blocks: _Blocks, heads: int) -> Iterator[_Blocks]:
    """Blocks of about one size together: not too many, and not too much padding."""
    queries, keys = blocks.queries, blocks.keys
    order = np.lexsort((keys, queries))
    begin = real = 0
    for i, at in enumerate(order):
        area = int(queries[at]) * int(keys[at])
        padded = (i + 1 - begin) * int(queries[at]) * int(keys[order[begin : i + 1]].max())
        if i > begin and (padded * heads > SCORES or padded > PADDED * (real + area)):
            yield blocks[order[begin:i]]
            begin, real = i, 0
        real += area
    yield blocks[order[begin:]]


def _padded(
    blocks: _Blocks, paths: list[Numbers], fewest: int
) -> tuple[Numbers, npt.NDArray[np.bool_], Numbers, npt.NDArray[np.bool_]]:
    """[blocks, most] places of the queries (of so many at least) and whether they are real, and the same of the keys.

    Padding repeats the first.
    """
    t, u = np.arange(max(fewest, blocks.queries.max())), np.arange(max(FEWEST_KEYS, blocks.keys.max()))
    real_q, real_k = t < blocks.queries[:, None], u < blocks.keys[:, None]
    place_k = np.where(real_k, (blocks.own - blocks.before)[:, None] + u, blocks.own[:, None])
    for line, of, before in zip(place_k, blocks.of, blocks.before, strict=True):
        line[:before] = paths[of]
    start = blocks.start[:, None]
    return np.where(real_q, start + t, start), real_q, place_k, real_k
