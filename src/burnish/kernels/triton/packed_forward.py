"""Triton kernels of packed attention, forward. packed_attention.py explains the table of tiles and calls them."""

from __future__ import annotations

import triton
import triton.language as tl

from burnish.kernels.triton.softmax import look, merge

LINE = tl.constexpr(8)


@triton.jit
def rows_at(ptr, at, real, token, head, D: tl.constexpr, DP: tl.constexpr):
    """[rows, DP] of one head, zeros where there is nothing."""
    d = tl.arange(0, DP)
    seen = real[:, None] & (d < D)[None, :]
    return tl.load(ptr + at.to(tl.int64)[:, None] * token + head + d[None, :], mask=seen, other=0.0)


@triton.jit
def _walk(
    q,
    found,
    keys,
    row,
    begin,
    end,
    position,
    window,
    scale,
    MASKED: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The keys at positions begin..end of a row, in blocks that are the same however the row is cut into root and rest.

    found: the softmax so far; keys: where they and values are; row: where its root is, how long, where the rest is
    """
    m, total, acc = found
    k_ptr, v_ptr, k_token, k_head, v_token, v_head = keys
    root, root_length, own = row
    for start in range(begin, end, BLOCK):
        t = start + tl.arange(0, BLOCK)
        at = tl.where(t < root_length, root + t, own + t - root_length)
        k = rows_at(k_ptr, at, t < end, k_token, k_head, D, DP)
        v = rows_at(v_ptr, at, t < end, v_token, v_head, D, DP)
        back = position[:, None] - t[None, :]
        m, total, acc = look(q, k, v, (back >= 0) & (back < window), m, total, acc, scale, MASKED)
    return m, total, acc


@triton.jit
def _span(
    q,
    keys,
    row,
    begin,
    clear,
    end,
    position,
    window,
    scale,
    BM: tl.constexpr,
    D: tl.constexpr,
    DP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """A softmax over the keys at positions begin..end, of which those before `clear` are seen by every token."""
    m = tl.full([BM], float("-inf"), tl.float32)
    total = tl.zeros([BM], tl.float32)
    acc = tl.zeros([BM, DP], tl.float32)
    clear = tl.minimum(clear, end)
    found = _walk(q, (m, total, acc), keys, row, begin, clear, position, window, scale, False, D, DP, BLOCK)
    return _walk(q, found, keys, row, clear, end, position, window, scale, True, D, DP, BLOCK)


@triton.jit
def forward_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
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
    GROUP,
    D: tl.constexpr,
    DP: tl.constexpr,
    BM: tl.constexpr,
    BLOCK: tl.constexpr,
    SPAN: tl.constexpr,
    LONG: tl.constexpr,
):
    """One tile and head of queries: what they see, and the log-sum-exp of their scores, to the base 2."""
    line, head = table + tl.program_id(0) * LINE, tl.program_id(1)
    start, length = tl.load(line), tl.load(line + 1)
    if length > 0:
        own, root, root_length = tl.load(line + 2), tl.load(line + 4), tl.load(line + 5)
        rows = start + tl.arange(0, BM)
        real = rows < start + length
        q = rows_at(q_ptr, rows, real, q_token, head * q_head, D, DP)
        shared = head // GROUP
        first = root_length + start - own  # the position of the tile's first token
        position = first + tl.arange(0, BM)
        begin = tl.maximum(first - window + 1, 0) // BLOCK * BLOCK
        # up to here every token sees every key
        clear = tl.where(first < window - BM, (first + 1) // BLOCK * BLOCK, begin)
        end = first + length
        until = tl.minimum((begin // SPAN + 1) * SPAN, end) if LONG else end
        keys, row = (k_ptr, v_ptr, k_token, shared * k_head, v_token, shared * v_head), (root, root_length, own)
        m, total, acc = _span(q, keys, row, begin, clear, until, position, window, scale, BM, D, DP, BLOCK)
        if LONG:
            for here in range(until, end, SPAN):
                from_here, to = tl.maximum(clear, here), tl.minimum(here + SPAN, end)
                more_m, more, more_acc = _span(
                    q, keys, row, here, from_here, to, position, window, scale, BM, D, DP, BLOCK
                )
                m, total, acc = merge(m, total, acc, more_m, more, more_acc, scale)
        d = tl.arange(0, DP)
        place = (rows.to(tl.int64) * HEADS + head)[:, None] * D + d[None, :]
        out = acc / tl.where(real, total, 1.0)[:, None]
        tl.store(out_ptr + place, out.to(out_ptr.dtype.element_ty), mask=real[:, None] & (d < D)[None, :])
        tl.store(lse_ptr + rows.to(tl.int64) * HEADS + head, m * scale + tl.log2(total), mask=real)
