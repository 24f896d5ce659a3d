"""The newest token's keys and values go where attention will find them, rotated; queries are rotated, too (Triton).

A decoder whose products are ours does it at the end of the one that makes them (kernels/triton/matmul.py); this is for
all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.forward.packing import KEYS
from burnish.kernels.architectures.spec import LayerSpec
from burnish.kernels.triton.adapters import Adapter
from burnish.kernels.triton.launch import after, chained
from burnish.kernels.triton.norm import APART
from burnish.kernels.triton.rotate import normed_heads, turned


@dataclass(frozen=True)
class Newest:
    """Where the newest tokens of rows are: row i's is the count[i]-th of those in slot[i], behind a root of
    root_length[i].
    """

    count: Tensor
    root_length: Tensor
    slot: Tensor


@dataclass(frozen=True)
class Turn:
    """How queries and keys are rotated: by [positions, D / 2] cosines and sines, after norms, if there are any."""

    cos: Tensor
    sin: Tensor
    norms: tuple[Tensor, Tensor] | None = None
    eps: float = 0.0
    offset: float = 0.0


@dataclass(frozen=True)
class Owed:
    """What an adapter still adds to queries, keys and values: inner [rows, R] times narrow [largest rank, outputs].

    firsts: the columns of inner at which the parts of queries, keys and values begin
    """

    inner: Tensor
    narrow: Tensor
    firsts: tuple[int, int, int]

    @classmethod
    def of(cls, adapter: Adapter | None, inner: Tensor | None, spec: LayerSpec) -> Owed | None:
        if adapter is None or inner is None:
            return None
        queries, keys, d = spec.of_heads
        q, k, v = adapter.firsts([queries * d, keys * d, keys * d])
        return cls(inner, adapter.narrow, (q, k, v))


@triton.jit
def _owed(
    inner,
    narrow,
    first,
    columns,
    real,
    OUTPUTS,
    TOTAL,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    RANKS: tl.constexpr,
):
    """[ROWS, COLUMNS] in fp32: a row of inner, from `first` on, times columns of narrow [RANKS, OUTPUTS]."""
    total = tl.zeros([ROWS, COLUMNS], tl.float32)
    for r in tl.static_range(RANKS):
        low = tl.load(inner + first + r, mask=first + r < TOTAL, other=0.0).to(tl.float32)
        total += low * tl.load(narrow + r * OUTPUTS + columns, mask=real, other=0.0).to(tl.float32)
    return total


@triton.jit
def _halves(
    ptr,
    at,
    inner,
    narrow,
    first,
    columns,
    OUTPUTS,
    TOTAL,
    norm,
    c,
    s,
    eps,
    offset,
    real,
    ROWS: tl.constexpr,
    HALF: tl.constexpr,
    LEVELS: tl.constexpr,
    HEAD_NORM: tl.constexpr,
    RANKS: tl.constexpr,
):
    """The two halves [heads, HALF] of heads of a projection: with their adapter's part, normalised if asked, and
    rotated by c and s [1, HALF]. columns: where the heads begin among the outputs."""
    half = tl.arange(0, HALF)
    kind: tl.constexpr = ptr.dtype.element_ty
    a = tl.load(ptr + at[:, None] + half[None, :], mask=real, other=0.0).to(tl.float32)
    b = tl.load(ptr + at[:, None] + HALF + half[None, :], mask=real, other=0.0).to(tl.float32)
    if RANKS:
        to = columns[:, None] + half[None, :]
        more = _owed(inner, narrow, first, to, real, OUTPUTS, TOTAL, ROWS, HALF, RANKS)
        a = (a + more).to(kind).to(tl.float32)
        more = _owed(inner, narrow, first, to + HALF, real, OUTPUTS, TOTAL, ROWS, HALF, RANKS)
        b = (b + more).to(kind).to(tl.float32)
    if HEAD_NORM:
        left = tl.load(norm + half).to(tl.float32)[None, :] + offset
        right = tl.load(norm + HALF + half).to(tl.float32)[None, :] + offset
        a, b = normed_heads(a, b, left, right, eps, kind, ROWS, HALF, LEVELS)
    a, b = turned(a, b, tl.broadcast_to(c, a.shape), s)
    return a.to(kind), b.to(kind)


@triton.jit
def _place_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    own_k,
    own_v,
    count_ptr,
    root_length_ptr,
    slot_ptr,
    cos_ptr,
    sin_ptr,
    q_norm,
    k_norm,
    inner,
    narrow,
    inner_row,
    k_first,
    v_first,
    OUTPUTS,
    TOTAL,
    eps,
    offset,
    q_row,
    q_head,
    k_row,
    k_head,
    v_row,
    v_head,
    own_row,
    own_head,
    HEADS: tl.constexpr,
    SHARED: tl.constexpr,
    HP: tl.constexpr,
    SP: tl.constexpr,
    D: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCK: tl.constexpr,
    TURN: tl.constexpr,
    HEAD_NORM: tl.constexpr,
    RANKS: tl.constexpr,
    PDL: tl.constexpr,
):
    """One row: all its heads. RANKS: of adapters whose part is still to be added; 0: none is."""
    row = tl.program_id(0).to(tl.int64)
    d, half, h, g = tl.arange(0, D), tl.arange(0, D // 2)[None, :], tl.arange(0, HP), tl.arange(0, SP)
    own = tl.load(count_ptr + row).to(tl.int32) - 1
    length = tl.load(root_length_ptr + row).to(tl.int32)
    place = tl.load(slot_ptr + row) * own_row + (length % BLOCK + own) * D + (g * own_head)[:, None]
    real, shared = (h < HEADS)[:, None], (g < SHARED)[:, None]
    c, s = tl.zeros([1, D // 2], tl.float32), tl.zeros([1, D // 2], tl.float32)
    if TURN:
        turn = (length + own) * (D // 2) + half
        c, s = tl.load(cos_ptr + turn).to(tl.float32), tl.load(sin_ptr + turn).to(tl.float32)
    after(PDL)
    at = row * k_row + g * k_head
    inner += row * inner_row
    kv_columns = (HEADS + g) * D
    if TURN:
        a, b = _halves(
            q_ptr, row * q_row + h * q_head, inner, narrow, 0, h * D, OUTPUTS, TOTAL,
            q_norm, c, s, eps, offset, real, HP, D // 2, LEVELS, HEAD_NORM, RANKS,
        )  # fmt: skip
        out = out_ptr + ((row * HEADS + h) * D)[:, None] + half
        tl.store(out, a, mask=real)
        tl.store(out + D // 2, b, mask=real)
        a, b = _halves(
            k_ptr, at, inner, narrow, k_first, kv_columns, OUTPUTS, TOTAL,
            k_norm, c, s, eps, offset, shared, SP, D // 2, LEVELS, HEAD_NORM, RANKS,
        )  # fmt: skip
        tl.store(own_k + place + half, a, mask=shared)
        tl.store(own_k + place + D // 2 + half, b, mask=shared)
    else:
        tl.store(own_k + place + d[None, :], tl.load(k_ptr + at[:, None] + d[None, :], mask=shared), mask=shared)
    v = tl.load(v_ptr + (row * v_row + g * v_head)[:, None] + d[None, :], mask=shared)
    if RANKS:
        to = (kv_columns + SHARED * D)[:, None] + d[None, :]
        v = v.to(tl.float32) + _owed(inner, narrow, v_first, to, shared, OUTPUTS, TOTAL, SP, D, RANKS)
        v = v.to(v_ptr.dtype.element_ty)
    tl.store(own_v + place + d[None, :], v, mask=shared)


def place(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    own_k: Tensor,
    own_v: Tensor,
    newest: Newest,
    turn: Turn | None = None,
    owed: Owed | None = None,
) -> Tensor:
    """Queries [rows, heads, 1, D], rotated (without `turn` nothing is); k, v [rows, heads, 1, D] go into slots [slots,
    heads, capacity, D].

    owed: what an adapter still adds to all of them, where they are rotated
    """
    rows, heads, _, d = q.shape
    shared = k.shape[1]
    out = q if turn is None else torch.empty(rows, heads, 1, d, dtype=q.dtype, device=q.device)
    cos, sin = (turn.cos, turn.sin) if turn else (q, q)
    norms = turn.norms if turn else None
    given: tuple[Any, ...] = q, q, 0, 0, 0, 0, 0
    if owed is not None:
        outputs, total = owed.narrow.shape[1], owed.inner.shape[1]
        given = owed.inner, owed.narrow, owed.inner.stride(0), *owed.firsts[1:], outputs, total
    _place_kernel[(rows,)](
        q,
        k,
        v,
        out,
        own_k,
        own_v,
        newest.count,
        newest.root_length,
        newest.slot,
        cos,
        sin,
        *(norms or (q, q)),
        *given,
        turn.eps if turn else 0.0,
        turn.offset if turn else 0.0,
        q.stride(0),
        q.stride(1),
        k.stride(0),
        k.stride(1),
        v.stride(0),
        v.stride(1),
        own_k.stride(0),
        own_k.stride(1),
        HEADS=heads,
        SHARED=shared,
        HP=triton.next_power_of_2(heads),
        SP=triton.next_power_of_2(shared),
        D=d,
        BLOCK=KEYS,
        LEVELS=d.bit_length() - 2,
        TURN=turn is not None,
        HEAD_NORM=norms is not None,
        RANKS=0 if owed is None else len(owed.narrow),
        num_warps=4 if owed is None else 8,
        **chained(q),
        **APART,
    )
    return out


@triton.jit
def _bring_kernel(
    own_k,
    own_v,
    pool_k,
    pool_v,
    root_ptr,
    root_length_ptr,
    slot_ptr,
    own_row,
    own_head,
    pool_token,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One row and head."""
    row, head = tl.program_id(0), tl.program_id(1)
    t, d = tl.arange(0, BLOCK), tl.arange(0, D)
    length = tl.load(root_length_ptr + row)
    rest = length % BLOCK
    there = (t < rest)[:, None]
    root = (tl.load(root_ptr + row) + length - rest + t)[:, None] * pool_token + head * D + d[None, :]
    own = tl.load(slot_ptr + row) * own_row + head * own_head + t[:, None] * D + d[None, :]
    tl.store(own_k + own, tl.load(pool_k + root, mask=there), mask=there)
    tl.store(own_v + own, tl.load(pool_v + root, mask=there), mask=there)


def bring(
    own_k: Tensor, own_v: Tensor, pool_k: Tensor, pool_v: Tensor, root: Tensor, root_length: Tensor, slot: Tensor
) -> None:
    """What roots have beyond whole blocks of keys goes into the slots of rows that enter: then no block lies in two
    places.
    """
    _, shared, _, d = own_k.shape
    _bring_kernel[(len(root), shared)](
        own_k,
        own_v,
        pool_k,
        pool_v,
        root,
        root_length,
        slot,
        own_k.stride(0),
        own_k.stride(1),
        pool_k.stride(0),
        D=d,
        BLOCK=KEYS,
        num_warps=4,
    )
