"""Triton kernels of packed attention, backward. packed_attention.py explains the table of tiles and calls them."""

from __future__ import annotations

import triton
import triton.language as tl

from burnish.kernels.triton.packed_forward import LINE, rows_at


@triton.jit
def _d_query(
    of,
    dq,
    keys,
    begin,
    end,
    rows,
    window,
    scale,
    CAUSAL: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add what the keys begin..end give to dq. of: the queries and what they have; keys: where they and values are."""
    q, grad, lse, delta = of
    k_ptr, v_ptr, k_token, k_head, v_token, v_head = keys
    for start in range(begin, end, BLOCK):
        at = start + tl.arange(0, BLOCK)
        real = at < end
        k = rows_at(k_ptr, at, real, k_token, k_head, D, DP)
        v = rows_at(v_ptr, at, real, v_token, v_head, D, DP)
        seen = real[None, :]
        if CAUSAL:
            back = rows[:, None] - at[None, :]
            seen = seen & (back >= 0) & (back < window)
        p = tl.where(seen, tl.exp2(tl.dot(q, tl.trans(k)) * scale - lse[:, None]), 0.0)
        ds = p * (tl.dot(grad, tl.trans(v)) - delta[:, None])
        dq = tl.dot(ds.to(k.dtype), k, dq)
    return dq


@triton.jit
def d_query_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    grad_ptr,
    delta_ptr,
    dq_ptr,
    table,
    scale,
    factor,
    window,
    q_token,
    q_head,
    k_token,
    k_head,
    v_token,
    v_head,
    dq_token,
    dq_head,
    HEADS,
    GROUP,
    D: tl.constexpr,
    DP: tl.constexpr,
    BM: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """One tile and head of queries: their gradient, and what each of them multiplies with its output, for the keys."""
    line, head = table + tl.program_id(0) * LINE, tl.program_id(1)
    start, length = tl.load(line), tl.load(line + 1)
    if length > 0:
        own, root, root_length = tl.load(line + 2), tl.load(line + 4), tl.load(line + 5)
        rows = start + tl.arange(0, BM)
        real = rows < start + length
        q = rows_at(q_ptr, rows, real, q_token, head * q_head, D, DP)
        grad = rows_at(grad_ptr, rows, real, HEADS * D, head * D, D, DP)
        out = rows_at(out_ptr, rows, real, HEADS * D, head * D, D, DP)
        at = rows.to(tl.int64) * HEADS + head
        lse = tl.load(lse_ptr + at, mask=real, other=float("inf"))
        delta = tl.sum(grad.to(tl.float32) * out.to(tl.float32), 1)
        tl.store(delta_ptr + at, delta, mask=real)
        shared = head // GROUP
        dq = tl.zeros([BM, DP], tl.float32)
        of, keys = (q, grad, lse, delta), (k_ptr, v_ptr, k_token, shared * k_head, v_token, shared * v_head)
        dq = _d_query(of, dq, keys, root, root + root_length, rows, window, scale, False, D, DP, BLOCK)
        begin = own + tl.maximum(start - own - window + 1, 0) // BLOCK * BLOCK
        dq = _d_query(of, dq, keys, begin, start + length, rows, window, scale, True, D, DP, BLOCK)
        d = tl.arange(0, DP)
        place = rows.to(tl.int64)[:, None] * dq_token + head * dq_head + d[None, :]
        tl.store(dq_ptr + place, (dq * factor).to(dq_ptr.dtype.element_ty), mask=real[:, None] & (d < D)[None, :])


@triton.jit
def _d_keys(
    kv,
    d_kv,
    queries,
    begin,
    end,
    at,
    head,
    window,
    scale,
    CAUSAL: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add what the queries begin..end of one head give to dk and dv. queries: where they are, and what they have."""
    k, v = kv
    dk, dv = d_kv
    q_ptr, grad_ptr, lse_ptr, delta_ptr, q_token, q_head, HEADS = queries
    for start in range(begin, end, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        real = rows < end
        q = rows_at(q_ptr, rows, real, q_token, head * q_head, D, DP)
        grad = rows_at(grad_ptr, rows, real, HEADS * D, head * D, D, DP)
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
def _key_tile(
    k_ptr,
    v_ptr,
    start,
    length,
    shared,
    k_token,
    k_head,
    v_token,
    v_head,
    D: tl.constexpr,
    DP: tl.constexpr,
    BM: tl.constexpr,
):
    """Where a tile's tokens are, which of them are real, and their keys and values."""
    at = start + tl.arange(0, BM)
    real = at < start + length
    k = rows_at(k_ptr, at, real, k_token, shared * k_head, D, DP)
    return at, real, k, rows_at(v_ptr, at, real, v_token, shared * v_head, D, DP)


@triton.jit
def d_kids_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    lse_ptr,
    grad_ptr,
    delta_ptr,
    part_ptr,
    table,
    scale,
    window,
    q_token,
    q_head,
    k_token,
    k_head,
    v_token,
    v_head,
    HEADS,
    SHARED,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    BM: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
    FROM: tl.constexpr,
):
    """What one query head of a share of the kids gives to dk and dv of a tile, in fp32: for `d_keys_kernel` to add up.

    A root is looked at by all of its kids, the other tiles by a few: one program would go on long after all others have
    ended.
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
        queries, end = (
            (q_ptr, grad_ptr, lse_ptr, delta_ptr, q_token, q_head, HEADS),
            tl.minimum(begin + share, kids_end),
        )
        head = shared * GROUP + part % GROUP
        dk, dv = _d_keys((k, v), (dk, dv), queries, begin, end, at, head, window, scale, False, D, DP, BLOCK)
        place = part_ptr + _place(line, shared, part, SHARED, GROUP * SPLIT, BM, DP)
        tl.store(place, dk)
        tl.store(place + BM * DP, dv)


@triton.jit
def _place(line, shared, part, SHARED, PARTS: tl.constexpr, BM: tl.constexpr, DP: tl.constexpr):
    """Where a part of a tile's dk lies; that of its dv follows."""
    number = ((line * SHARED + shared) * PARTS + part).to(tl.int64)
    return number * (2 * BM * DP) + tl.arange(0, BM)[:, None] * DP + tl.arange(0, DP)[None, :]


@triton.jit
def d_keys_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    lse_ptr,
    grad_ptr,
    delta_ptr,
    dk_ptr,
    dv_ptr,
    part_ptr,
    table,
    scale,
    factor,
    window,
    q_token,
    q_head,
    k_token,
    k_head,
    v_token,
    v_head,
    dk_token,
    dk_head,
    dv_token,
    dv_head,
    HEADS,
    SHARED,
    LINES,
    GROUP: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    BM: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLIT: tl.constexpr,
    FROM: tl.constexpr,
):
    """One tile and head of keys and values: their gradients, from all queries that attend to them."""
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
        if (number < LINES) & (kids_end - kids > FROM):  # `d_kids_kernel` has looked at them
            parts, kids_end = GROUP * SPLIT, kids
        queries = q_ptr, grad_ptr, lse_ptr, delta_ptr, q_token, q_head, HEADS
        for g in range(GROUP):
            head = shared * GROUP + g
            dk, dv = _d_keys((k, v), (dk, dv), queries, start, last, at, head, window, scale, True, D, DP, BLOCK)
            dk, dv = _d_keys((k, v), (dk, dv), queries, kids, kids_end, at, head, window, scale, False, D, DP, BLOCK)
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
