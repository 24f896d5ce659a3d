"""The engine's GPU kernels (Triton): attention of one new token per row, and sampling.

Each row is worked on by programs of its own, in an order that depends on nothing but the row: what a row gets does not
depend on its neighbours.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.cast.products import after, chained

# as measured on an H200: heads of up to 64 for few rows, some, many; and wider heads
FEW = {"BLOCK": 128, "num_warps": 4, "num_stages": 3}
SOME = {"BLOCK": 32, "num_warps": 1, "num_stages": 4}
MANY = {"BLOCK": 32, "num_warps": 1, "num_stages": 3}
WIDE = {"BLOCK": 64, "num_warps": 2, "num_stages": 2}
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _turned(
    ptr, stride, norm, c, s, eps, real, D: tl.constexpr, HEAD_NORM: tl.constexpr
):  # fmt: skip
    """[heads, D] from a projection: normalised if asked, and rotated. Each number needs its partner, half a head away."""
    d = tl.arange(0, D)
    partner = (d + D // 2) % D
    kind = ptr.dtype.element_ty
    x = tl.load(ptr + stride[:, None] + d[None, :], mask=real, other=0.0).to(tl.float32)
    y = tl.load(ptr + stride[:, None] + partner[None, :], mask=real, other=0.0).to(tl.float32)
    if HEAD_NORM:
        scale = (1.0 / tl.sqrt(tl.sum(x * x, 1) / D + eps))[:, None]
        x = ((x * scale).to(kind).to(tl.float32) * tl.load(norm + d).to(tl.float32)[None, :]).to(kind).to(tl.float32)
        y = (
            ((y * scale).to(kind).to(tl.float32) * tl.load(norm + partner).to(tl.float32)[None, :])
            .to(kind)
            .to(tl.float32)
        )
    y = tl.where(d[None, :] < D // 2, -y, y)
    return (x * c[None, :] + y * s[None, :]).to(kind)


@triton.jit
def _decode_kernel(
    q_ptr, k_ptr, v_ptr, out_ptr, own_k, own_v, pool_k, pool_v, count_ptr, root_ptr, root_length_ptr, slot_ptr,
    cos_ptr, sin_ptr, q_norm, k_norm, eps,
    scale, window, q_row, q_head, k_row, k_head, v_row, v_head, own_row, own_head, pool_token,
    HEADS: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    TURN: tl.constexpr, HEAD_NORM: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    after(PDL)
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d, g = tl.arange(0, D), tl.arange(0, GP)
    real = (g < G)[:, None]
    own = tl.load(count_ptr + row) - 1  # tokens of its own that the row has read before this one
    length = tl.load(root_length_ptr + row)
    queries = row * q_row + (head * G + g) * q_head
    if TURN:
        turn = (own + length) * (D // 2) + d % (D // 2)
        c, s = tl.load(cos_ptr + turn).to(tl.float32), tl.load(sin_ptr + turn).to(tl.float32)
        q = _turned(q_ptr, queries, q_norm, c, s, eps, real, D, HEAD_NORM)
        first = tl.zeros([1], tl.int64) + row * k_row + head * k_head
        k = tl.sum(_turned(k_ptr, first, k_norm, c, s, eps, True, D, HEAD_NORM), 0)  # of one head: it is that head
    else:
        q = tl.load(q_ptr + queries[:, None] + d[None, :], mask=real, other=0.0)
        k = tl.load(k_ptr + row * k_row + head * k_head + d)
    v = tl.load(v_ptr + row * v_row + head * v_head + d)
    at = tl.load(slot_ptr + row) * own_row + head * own_head
    tl.store(own_k + at + own * D + d, k)
    tl.store(own_v + at + own * D + d, v)
    m = tl.sum(q.to(tl.float32) * k.to(tl.float32)[None, :], 1) * scale
    total = tl.full([GP], 1.0, tl.float32)
    acc = tl.zeros([GP, D], tl.float32) + v.to(tl.float32)[None, :]
    root = tl.load(root_ptr + row).to(tl.int64) * pool_token + head * D
    # one walk over the root and the row's own tokens, from the first one that the window shows
    for start in range(tl.maximum(length + own + 1 - window, 0), length + own, BLOCK):
        t = start + tl.arange(0, BLOCK)
        seen, in_root = (t < length + own)[:, None], (t < length)[:, None]
        shared = root + t.to(tl.int64)[:, None] * pool_token + d[None, :]
        alone = at + (t - length).to(tl.int64)[:, None] * D + d[None, :]
        keys = tl.load(tl.where(in_root, pool_k + shared, own_k + alone), mask=seen, other=0.0)
        z = tl.where(tl.trans(seen), tl.dot(q, tl.trans(keys)) * scale, float("-inf"))
        top = tl.maximum(m, tl.max(z, 1))
        p = tl.exp2((z - top[:, None]) * LOG2E)
        shrink = tl.exp2((m - top) * LOG2E)
        values = tl.load(tl.where(in_root, pool_v + shared, own_v + alone), mask=seen, other=0.0)
        total = total * shrink + tl.sum(p, 1)
        acc = acc * shrink[:, None] + tl.dot(p.to(values.dtype), values)
        m = top
    place = out_ptr + (row * HEADS + head * G + g)[:, None] * D + d[None, :]
    tl.store(place, (acc / total[:, None]).to(out_ptr.dtype.element_ty), mask=real)


@dataclass(frozen=True)
class Turn:
    """What the kernel does to queries and keys first: rotate them by [positions, D / 2] cosines and sines, after norms."""

    cos: Tensor
    sin: Tensor
    norms: tuple[Tensor, Tensor] | None = None
    eps: float = 0.0


def attend_one(
    q: Tensor, k: Tensor, v: Tensor, own_k: Tensor, own_v: Tensor, pool_k: Tensor, pool_v: Tensor,
    count: Tensor, root: Tensor, root_length: Tensor, slot: Tensor, scale: float, window: int,
    turn: Turn | None = None,
) -> Tensor:  # fmt: skip
    """What the operator `decode` does, on queries and keys that are rotated here (turn) or were before."""
    rows, heads, _, d = q.shape
    shared = own_k.shape[1]
    out = torch.empty(rows, 1, heads, d, dtype=q.dtype, device=q.device)
    group = heads // shared
    cos, sin = (turn.cos, turn.sin) if turn else (q, q)
    norms = (turn.norms if turn else None) or (q, q)
    _decode_kernel[(rows, shared)](
        q, k, v, out, own_k, own_v, pool_k, pool_v, count, root, root_length, slot,
        cos, sin, *norms, turn.eps if turn else 0.0,
        scale, window, q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
        own_k.stride(0), own_k.stride(1), pool_k.stride(0),
        HEADS=heads, G=group, GP=max(16, triton.next_power_of_2(group)), D=d,
        TURN=turn is not None, HEAD_NORM=turn is not None and turn.norms is not None,
        **(WIDE if d > 64 else FEW if rows <= 128 else SOME if rows <= 512 else MANY), **chained(q),
    )  # fmt: skip
    return out


def _decode(
    q: Tensor, k: Tensor, v: Tensor, own_k: Tensor, own_v: Tensor, pool_k: Tensor, pool_v: Tensor,
    count: Tensor, root: Tensor, root_length: Tensor, slot: Tensor, scale: float, window: int,
) -> Tensor:  # fmt: skip
    return attend_one(q, k, v, own_k, own_v, pool_k, pool_v, count, root, root_length, slot, scale, window)


decode = torch.library.custom_op(
    "burnish::decode",
    _decode,
    mutates_args=("own_k", "own_v"),
    schema="(Tensor q, Tensor k, Tensor v, Tensor(a!) own_k, Tensor(b!) own_v, Tensor pool_k, Tensor pool_v, "
    "Tensor count, Tensor root, Tensor root_length, Tensor slot, float scale, int window) -> Tensor",
)
"""[rows, 1, heads, D]: each row's new token (q, k, v [rows, heads, 1, D]) attends to its root, to its own tokens and to itself.

own_k, own_v  [slots, heads, capacity, D]: row i's own tokens are in slot[i]; the new one is written at place count[i] - 1
pool_k, pool_v  [T, heads, D]: the roots, row i's from root[i], root_length[i] tokens long
window  how many tokens a token sees, itself included
"""


@decode.register_fake
def _(q: Tensor, *args: object) -> Tensor:
    rows, heads, _, d = q.shape
    return q.new_empty(rows, 1, heads, d)


@triton.jit
def _sums_kernel(logits, factor_ptr, tops, sums, V, blocks, BLOCK: tl.constexpr):
    """The largest logit of each block of the vocabulary, and the sum of e^(logit - largest)."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    v = block * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits + row * V + v, mask=v < V, other=float("-inf")) * tl.load(factor_ptr + row)
    top = tl.max(z, 0)
    tl.store(tops + row * blocks + block, top)
    tl.store(sums + row * blocks + block, tl.sum(tl.exp2((z - top) * LOG2E), 0))


@triton.jit
def _uniform(key, position):
    """In [0, 1): the first 24 bits of splitmix64(key + position * golden ratio), as burnish.randomness has it."""
    x = (key + position * -7046029254386353131).to(tl.uint64)
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    x = x ^ (x >> 31)
    return (x >> 40).to(tl.float32) * (1.0 / 16777216.0)


@triton.jit
def _choose_kernel(
    logits, tops, sums, token_ptr, logp_ptr, V, blocks, columns,
    factor_ptr, key_ptr, greedy_ptr, base_ptr, root_length_ptr, limit_ptr, slot_ptr, stops_ptr,
    last_ptr, count_ptr, done_ptr, ended_ptr,
    STOPS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """The token at which the cumulative probability passes the row's noise (block first, then within it), noted down."""
    row = tl.program_id(0).to(tl.int64)
    count, done = tl.load(count_ptr + row), tl.load(done_ptr + row) != 0
    position = tl.load(base_ptr + row) + tl.load(root_length_ptr + row) + count
    factor, greedy = tl.load(factor_ptr + row), tl.load(greedy_ptr + row) != 0
    b = tl.arange(0, BLOCKS)
    top = tl.load(tops + row * blocks + b, mask=b < blocks, other=float("-inf"))
    highest = tl.max(top, 0)
    weight = tl.load(sums + row * blocks + b, mask=b < blocks, other=0.0) * tl.exp2((top - highest) * LOG2E)
    total = tl.sum(weight, 0)
    wanted = _uniform(tl.load(key_ptr + row), position) * total
    passed = tl.min(tl.where((tl.cumsum(weight, 0) > wanted) & (weight > 0), b, BLOCKS), 0)
    passed = tl.minimum(passed, tl.max(tl.where(weight > 0, b, 0), 0))
    likeliest = tl.min(tl.where(top == highest, b, BLOCKS), 0)
    block = tl.where(greedy, likeliest, passed)
    before = tl.sum(tl.where(b < block, weight, 0.0), 0)
    v = block * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits + row * V + v, mask=v < V, other=float("-inf")) * factor
    p = tl.exp2((z - highest) * LOG2E)
    inside = tl.min(tl.where((before + tl.cumsum(p, 0) > wanted) & (p > 0), v, V), 0)
    inside = tl.minimum(inside, tl.max(tl.where(p > 0, v, 0), 0))
    best = tl.min(tl.where(z == highest, v, V), 0)
    token = tl.where(greedy, best, inside)
    chosen = tl.sum(tl.where(v == token, z, 0.0), 0)
    place = tl.load(slot_ptr + row) * columns + count
    tl.store(token_ptr + place, token.to(tl.int64))
    tl.store(logp_ptr + place, chosen - highest - tl.log2(total) / LOG2E)
    stopped = False
    for i in tl.static_range(STOPS):
        stopped = stopped | (tl.load(stops_ptr + i) == token)
    stopped = stopped & (done == 0)
    count = tl.where(done, count, count + 1)
    tl.store(last_ptr + row, token.to(tl.int64))
    tl.store(count_ptr + row, count)
    tl.store(ended_ptr + row, (tl.load(ended_ptr + row) != 0) | stopped)
    tl.store(done_ptr + row, done | stopped | (count >= tl.load(limit_ptr + row)))


def sample(rows: Any, at: slice, logits: Tensor) -> None:
    """One more token for the rows of a slice, from their logits [n, V]: what Rows.sample does, in two kernels."""
    n, vocabulary = logits.shape
    size = 4096 if vocabulary > 4096 else triton.next_power_of_2(vocabulary)
    blocks = triton.cdiv(vocabulary, size)
    tops, sums = (torch.empty(n, blocks, dtype=torch.float32, device=logits.device) for _ in range(2))
    _sums_kernel[(n, blocks)](logits, rows.factor[at], tops, sums, vocabulary, blocks, BLOCK=size, num_warps=8)
    _choose_kernel[(n,)](
        logits, tops, sums, rows.tokens, rows.logp, vocabulary, blocks, rows.tokens.stride(0),
        rows.factor[at], rows.key[at], rows.greedy[at], rows.base[at], rows.root_length[at], rows.limit[at],
        rows.slot[at], rows.stops,
        rows.last[at], rows.count[at], rows.done[at], rows.ended[at],
        STOPS=len(rows.stops), BLOCK=size, BLOCKS=triton.next_power_of_2(blocks), num_warps=8,
    )  # fmt: skip
