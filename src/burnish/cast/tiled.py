"""Attention over packed rows on a GPU (Triton), beginnings that rows share read once, forward and backward.

The pack is cut into tiles of up to TILE tokens of one stretch. A table says of each tile (one line of int32 each):

    start, length      its tokens
    own, end           the stretch that it is a part of
    root, root_length  the beginning that its stretch goes on from (root_length 0: none)
    kids, kids_end     the tokens that go on from its stretch (kids = kids_end: none)

A query tile looks at its root and, causally, at its own stretch; a key tile is looked at by the later tokens of its own
stretch and by all of its kids. No sum is taken in an order that chance decides, so the same pack gives the same bits.
Lines of length 0 do nothing: a table may be longer than the pack needs, so that a pass can be recorded and replayed.

Tensors are [N, heads, D]; log-sum-exps are [N, heads], to the base 2.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.cast.packing import KEYS, SPAN, TILE
from burnish.cast.softmax import look, merge

LOG2E = 1.4426950408889634
LINE = tl.constexpr(8)


@triton.jit
def _rows(ptr, at, real, token, head, D: tl.constexpr, DP: tl.constexpr):
    """[rows, DP] of one head, zeros where there is nothing."""
    d = tl.arange(0, DP)
    seen = real[:, None] & (d < D)[None, :]
    return tl.load(ptr + at.to(tl.int64)[:, None] * token + head + d[None, :], mask=seen, other=0.0)


@triton.jit
def _walk(q, m, total, acc, k_ptr, v_ptr, begin, end, position, root, root_length, own, window, scale,
          k_token, k_head, v_token, v_head, MASKED: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """The keys at positions begin..end of a row, in blocks that are the same however the row is cut into root and rest."""
    for start in range(begin, end, BLOCK):
        t = start + tl.arange(0, BLOCK)
        at = tl.where(t < root_length, root + t, own + t - root_length)
        k = _rows(k_ptr, at, t < end, k_token, k_head, D, DP)
        v = _rows(v_ptr, at, t < end, v_token, v_head, D, DP)
        back = position[:, None] - t[None, :]
        m, total, acc = look(q, k, v, (back >= 0) & (back < window), m, total, acc, scale, MASKED)
    return m, total, acc


@triton.jit
def _span(q, k_ptr, v_ptr, begin, clear, end, position, root, root_length, own, window, scale,
          k_token, k_head, v_token, v_head, BM: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """A softmax over the keys at positions begin..end, of which those before `clear` are seen by every token of the tile."""
    m = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, DP], tl.float32)
    clear = tl.minimum(clear, end)
    m, total, acc = _walk(q, m, total, acc, k_ptr, v_ptr, begin, clear, position, root, root_length, own, window, scale,
                          k_token, k_head, v_token, v_head, False, D, DP, BLOCK)  # fmt: skip
    return _walk(q, m, total, acc, k_ptr, v_ptr, clear, end, position, root, root_length, own, window, scale,
                 k_token, k_head, v_token, v_head, True, D, DP, BLOCK)  # fmt: skip


@triton.jit
def _forward_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, table, scale, window, q_token, q_head, k_token, k_head, v_token, v_head,
    HEADS, GROUP, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BLOCK: tl.constexpr,
    SPAN: tl.constexpr, LONG: tl.constexpr,
):  # fmt: skip
    line, head = table + tl.program_id(0) * LINE, tl.program_id(1)
    start, length = tl.load(line), tl.load(line + 1)
    if length > 0:
        own, root, root_length = tl.load(line + 2), tl.load(line + 4), tl.load(line + 5)
        rows = start + tl.arange(0, BM)
        real = rows < start + length
        q = _rows(q_ptr, rows, real, q_token, head * q_head, D, DP)
        shared = head // GROUP
        first = root_length + start - own  # the position of the tile's first token
        position = first + tl.arange(0, BM)
        begin = tl.maximum(first - window + 1, 0) // BLOCK * BLOCK
        clear = tl.where(
            first < window - BM, (first + 1) // BLOCK * BLOCK, begin
        )  # up to here every token sees every key
        end = first + length
        until = tl.minimum((begin // SPAN + 1) * SPAN, end) if LONG else end
        m, total, acc = _span(q, k_ptr, v_ptr, begin, clear, until, position, root, root_length, own, window, scale,
                              k_token, shared * k_head, v_token, shared * v_head, BM, D, DP, BLOCK)  # fmt: skip
        if LONG:
            for here in range(until, end, SPAN):
                more_m, more, more_acc = _span(q, k_ptr, v_ptr, here, tl.maximum(clear, here), tl.minimum(here + SPAN, end), position,
                                               root, root_length, own, window, scale,
                                               k_token, shared * k_head, v_token, shared * v_head, BM, D, DP, BLOCK)  # fmt: skip
                m, total, acc = merge(m, total, acc, more_m, more, more_acc, scale)
        d = tl.arange(0, DP)
        place = (rows.to(tl.int64) * HEADS + head)[:, None] * D + d[None, :]
        out = acc / tl.where(real, total, 1.0)[:, None]
        tl.store(out_ptr + place, out.to(out_ptr.dtype.element_ty), mask=real[:, None] & (d < D)[None, :])
        tl.store(lse_ptr + rows.to(tl.int64) * HEADS + head, m * scale + tl.log2(total), mask=real)


@triton.jit
def _d_query(q, grad, lse, delta, dq, k_ptr, v_ptr, end, begin, rows, window, k_token, k_head, v_token, v_head, scale,
             CAUSAL: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Add what the keys begin..end give to dq."""
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        real = at < end
        k = _rows(k_ptr, at, real, k_token, k_head, D, DP)
        v = _rows(v_ptr, at, real, v_token, v_head, D, DP)
        seen = real[None, :]
        if CAUSAL:
            back = rows[:, None] - at[None, :]
            seen = seen & (back >= 0) & (back < window)
        p = tl.where(seen, tl.exp2(tl.dot(q, tl.trans(k)) * scale - lse[:, None]), 0.0)
        ds = p * (tl.dot(grad, tl.trans(v)) - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    return dq


@triton.jit
def _d_query_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, lse_ptr, grad_ptr, delta_ptr, dq_ptr, table, scale, factor, window,
    q_token, q_head, k_token, k_head, v_token, v_head, dq_token, dq_head, HEADS, GROUP,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    line, head = table + tl.program_id(0) * LINE, tl.program_id(1)
    start, length = tl.load(line), tl.load(line + 1)
    if length > 0:
        own, root, root_length = tl.load(line + 2), tl.load(line + 4), tl.load(line + 5)
        rows = start + tl.arange(0, BM)
        real = rows < start + length
        q = _rows(q_ptr, rows, real, q_token, head * q_head, D, DP)
        grad = _rows(grad_ptr, rows, real, HEADS * D, head * D, D, DP)
        out = _rows(out_ptr, rows, real, HEADS * D, head * D, D, DP)
        at = rows.to(tl.int64) * HEADS + head
        lse = tl.load(lse_ptr + at, mask=real, other=float("inf"))
        delta = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
        tl.store(delta_ptr + at, delta, mask=real)
        shared = head // GROUP
        dq = tl.zeros([BM, DP], tl.float32)
        dq = _d_query(q, grad, lse, delta, dq, k_ptr, v_ptr, root + root_length, root, rows, window,
                      k_token, shared * k_head, v_token, shared * v_head, scale, False, D, DP, BLOCK)  # fmt: skip
        begin = own + tl.maximum(start - own - window + 1, 0) // BLOCK * BLOCK
        dq = _d_query(q, grad, lse, delta, dq, k_ptr, v_ptr, start + length, begin, rows, window,
                      k_token, shared * k_head, v_token, shared * v_head, scale, True, D, DP, BLOCK)  # fmt: skip
        d = tl.arange(0, DP)
        place = rows.to(tl.int64)[:, None] * dq_token + head * dq_head + d[None, :]
        tl.store(dq_ptr + place, (dq * factor).to(dq_ptr.dtype.element_ty), mask=real[:, None] & (d < D)[None, :])


@triton.jit
def _d_keys(k, v, dk, dv, q_ptr, grad_ptr, lse_ptr, delta_ptr, begin, end, at, head, window, q_token, q_head, HEADS, scale,
            CAUSAL: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
    """Add what the queries begin..end of one head give to dk and dv."""
    for start in range(begin, end, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        real = rows < end
        q = _rows(q_ptr, rows, real, q_token, head * q_head, D, DP)
        grad = _rows(grad_ptr, rows, real, HEADS * D, head * D, D, DP)
        place = rows.to(tl.int64) * HEADS + head
        lse = tl.load(lse_ptr + place, mask=real, other=float("inf"))
        delta = tl.load(delta_ptr + place, mask=real, other=0.0)
        p = tl.exp2(tl.dot(k, tl.trans(q)) * scale - lse[None, :])  # [keys, queries]
        if CAUSAL:
            back = rows[None, :] - at[:, None]
            p = tl.where((back >= 0) & (back < window), p, 0.0)
        dv = tl.dot(p.to(grad.dtype), grad, dv)
        ds = p * (tl.dot(v, tl.trans(grad)) - delta[None, :])
        dk = tl.dot(ds.to(q.dtype), q, dk)
    return dk, dv


@triton.jit
def _key_tile(k_ptr, v_ptr, start, length, shared, k_token, k_head, v_token, v_head,
              D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr):  # fmt: skip
    """Where a tile's tokens are, which of them are real, and their keys and values."""
    at = start + tl.arange(0, BM)
    real = at < start + length
    k = _rows(k_ptr, at, real, k_token, shared * k_head, D, DP)
    return at, real, k, _rows(v_ptr, at, real, v_token, shared * v_head, D, DP)


@triton.jit
def _d_kids_kernel(
    q_ptr, k_ptr, v_ptr, lse_ptr, grad_ptr, delta_ptr, part_ptr, table, scale, window,
    q_token, q_head, k_token, k_head, v_token, v_head, HEADS, SHARED, GROUP: tl.constexpr,
    D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BLOCK: tl.constexpr, SPLIT: tl.constexpr, FROM: tl.constexpr,
):  # fmt: skip
    """What one query head of a share of the kids gives to dk and dv of a tile, in fp32: for `_d_keys_kernel` to add up.

    A root is looked at by all of its kids, the other tiles by a few: one program would go on long after all others have ended.
    """
    line, shared, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start, length = tl.load(table + line * LINE), tl.load(table + line * LINE + 1)
    kids, kids_end = tl.load(table + line * LINE + 6), tl.load(table + line * LINE + 7)
    if (length > 0) & (kids_end - kids > FROM):
        at, _, k, v = _key_tile(k_ptr, v_ptr, start, length, shared, k_token, k_head, v_token, v_head, D, DP, BM)
        dk = tl.zeros([BM, DP], tl.float32)
        dv = tl.zeros([BM, DP], tl.float32)
        share = tl.cdiv(tl.cdiv(kids_end - kids, SPLIT), BLOCK) * BLOCK
        begin = kids + part // GROUP * share
        dk, dv = _d_keys(k, v, dk, dv, q_ptr, grad_ptr, lse_ptr, delta_ptr, begin, tl.minimum(begin + share, kids_end), at,
                         shared * GROUP + part % GROUP, window, q_token, q_head, HEADS, scale, False, D, DP, BLOCK)  # fmt: skip
        place = part_ptr + _place(line, shared, part, SHARED, GROUP * SPLIT, BM, DP)
        tl.store(place, dk)
        tl.store(place + BM * DP, dv)


@triton.jit
def _place(line, shared, part, SHARED, PARTS: tl.constexpr, BM: tl.constexpr, DP: tl.constexpr):
    """Where a part of a tile's dk lies; that of its dv follows."""
    number = ((line * SHARED + shared) * PARTS + part).to(tl.int64)
    return number * (2 * BM * DP) + tl.arange(0, BM)[:, None] * DP + tl.arange(0, DP)[None, :]


@triton.jit
def _d_keys_kernel(
    q_ptr, k_ptr, v_ptr, lse_ptr, grad_ptr, delta_ptr, dk_ptr, dv_ptr, part_ptr, table, scale, factor, window,
    q_token, q_head, k_token, k_head, v_token, v_head, dk_token, dk_head, dv_token, dv_head, HEADS, SHARED, LINES,
    GROUP: tl.constexpr, D: tl.constexpr, DP: tl.constexpr, BM: tl.constexpr, BLOCK: tl.constexpr,
    SPLIT: tl.constexpr, FROM: tl.constexpr,
):  # fmt: skip
    number, shared = tl.program_id(0), tl.program_id(1)
    line = table + number * LINE
    start, length = tl.load(line), tl.load(line + 1)
    if length > 0:
        end, kids, kids_end = tl.load(line + 3), tl.load(line + 6), tl.load(line + 7)
        at, real, k, v = _key_tile(k_ptr, v_ptr, start, length, shared, k_token, k_head, v_token, v_head, D, DP, BM)
        dk = tl.zeros([BM, DP], tl.float32)
        dv = tl.zeros([BM, DP], tl.float32)
        last = tl.minimum(end, start + length - 1 + window)
        parts = 0
        if (number < LINES) & (kids_end - kids > FROM):  # `_d_kids_kernel` has looked at them
            parts, kids_end = GROUP * SPLIT, kids
        for g in range(GROUP):
            head = shared * GROUP + g
            dk, dv = _d_keys(k, v, dk, dv, q_ptr, grad_ptr, lse_ptr, delta_ptr, start, last, at, head, window,
                             q_token, q_head, HEADS, scale, True, D, DP, BLOCK)  # fmt: skip
            dk, dv = _d_keys(k, v, dk, dv, q_ptr, grad_ptr, lse_ptr, delta_ptr, kids, kids_end, at, head, window,
                             q_token, q_head, HEADS, scale, False, D, DP, BLOCK)  # fmt: skip
        for part in range(parts):
            place = part_ptr + _place(number, shared, part, SHARED, GROUP * SPLIT, BM, DP)
            dk += tl.load(place)
            dv += tl.load(place + BM * DP)
        d = tl.arange(0, DP)
        seen = real[:, None] & (d < D)[None, :]
        rows = at.to(tl.int64)[:, None]
        d_keys, d_values = (
            rows * dk_token + shared * dk_head + d[None, :],
            rows * dv_token + shared * dv_head + d[None, :],
        )
        tl.store(dk_ptr + d_keys, (dk * factor).to(dk_ptr.dtype.element_ty), mask=seen)
        tl.store(dv_ptr + d_values, dv.to(dv_ptr.dtype.element_ty), mask=seen)


FAR = 1 << 30
AHEAD = {"num_warps": 4, "num_stages": 3}  # as measured on an H200
BACK = {"num_warps": 4, "num_stages": 1}
KIDS = {
    "SPLIT": 4,
    "FROM": 512,
}  # how many tokens of kids are looked at apart from a tile, and in how many shares for each head
ROOM = 96 << 20  # bytes for what they give


def _sizes(q: Tensor, k: Tensor) -> dict[str, int]:
    d = q.shape[-1]
    return {"GROUP": q.shape[1] // k.shape[1], "D": d, "DP": max(16, triton.next_power_of_2(d)), "BM": TILE}


def _strides(*tensors: Tensor) -> list[int]:
    return [x.stride(i) for x in tensors for i in (0, 1)]


def _straight(*tensors: Tensor) -> list[Tensor]:
    """The numbers of a head side by side, whatever comes before."""
    return [x if x.stride(-1) == 1 else x.contiguous() for x in tensors]


def forward(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, scale: float, window: int, long: bool = False
) -> tuple[Tensor, Tensor]:
    """Attention [N, heads, D] and its log-sum-exp [N, heads] to the base 2. long: in spans, as the sampler's are (engine/kernels.py)."""
    q, k, v = _straight(q, k, v)
    n, heads, d = q.shape
    out = torch.empty(n, heads, d, dtype=q.dtype, device=q.device)
    lse = torch.empty(n, heads, dtype=torch.float32, device=q.device)
    _forward_kernel[(len(table), heads)](
        q, k, v, out, lse, table, scale * LOG2E, window or FAR, *_strides(q, k, v), heads, **_sizes(q, k), BLOCK=KEYS,
        SPAN=SPAN, LONG=long, **AHEAD,
    )  # fmt: skip
    return out, lse


def backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, table: Tensor, scale: float, window: int,
    into: tuple[Tensor, ...] | None = None,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients of q, k, v; into: where they are to be written."""
    q, k, v = _straight(q, k, v)
    grad = grad.contiguous()
    heads, shared = q.shape[1], k.shape[1]
    dq, dk, dv = into or (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    delta = torch.empty_like(lse)
    _d_query_kernel[(len(table), heads)](
        q, k, v, out, lse, grad, delta, dq, table, scale * LOG2E, scale, window or FAR, *_strides(q, k, v, dq), heads,
        **_sizes(q, k), BLOCK=TILE, **BACK,
    )  # fmt: skip
    sizes, parts = _sizes(q, k), KIDS["SPLIT"] * (heads // shared)
    held = 2 * TILE * sizes["DP"]
    lines = min(len(table), 64, ROOM // (4 * held * shared * parts))  # roots come first
    part = torch.empty(lines * shared * parts * held, dtype=torch.float32, device=q.device)
    _d_kids_kernel[(lines, shared, parts)](
        q, k, v, lse, grad, delta, part, table, scale * LOG2E, window or FAR, *_strides(q, k, v), heads, shared,
        **sizes, BLOCK=TILE, **KIDS, **BACK,
    )  # fmt: skip
    _d_keys_kernel[(len(table), shared)](
        q, k, v, lse, grad, delta, dk, dv, part, table, scale * LOG2E, scale, window or FAR,
        *_strides(q, k, v, dk, dv), heads, shared, lines, **sizes, BLOCK=TILE, **KIDS, **BACK,
    )  # fmt: skip
    return dq, dk, dv


def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, table: Tensor, scale: float, window: int
) -> tuple[Tensor, Tensor, Tensor]:
    return backward(grad, q, k, v, out, lse, table, scale, window)  # type: ignore[return-value]


def _attend(q: Tensor, k: Tensor, v: Tensor, table: Tensor, scale: float, window: int) -> tuple[Tensor, Tensor]:
    return forward(q, k, v, table, scale, window)


# As operators, so that a compiler takes each as one piece.

attend = torch.library.custom_op(
    "burnish::attend",
    _attend,
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor table, float scale, int window) -> (Tensor, Tensor)",
)


@attend.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    n, heads, d = q.shape
    return q.new_empty(n, heads, d), q.new_empty(n, heads, dtype=torch.float32)


attend_backward = torch.library.custom_op(
    "burnish::attend_backward",
    _backward,
    mutates_args=(),
    schema="(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor table, float scale, int window) "
    "-> (Tensor, Tensor, Tensor)",
)


@attend_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))  # type: ignore[return-value]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, table, scale, window = inputs
    ctx.save_for_backward(q, k, v, *output, table)
    ctx.how = scale, window


def _go_back(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *torch.ops.burnish.attend_backward(grad, *ctx.saved_tensors, *ctx.how), None, None, None


attend.register_autograd(_go_back, setup_context=_keep)
