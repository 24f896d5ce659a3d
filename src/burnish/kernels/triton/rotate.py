"""GPU kernels (Triton) that rotate the heads of queries and keys, after their norms, if they have any; forward and
backward."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.kernels.triton.norm import APART, pairs

BLOCK = 16  # heads that a program of a backward pass has at once
PROGRAMS = (
    528  # that share the tokens of a backward pass, for each block of heads: four for each multiprocessor of an H200
)


@triton.jit
def turned(a, b, c, s):
    """The two halves of heads, rotated; said in full, so that sampler and trainer get the same bits."""
    return tl.fma(a, c, -b * s), tl.fma(b, c, a * s)


@triton.jit
def inverse_rms(a, b, eps, ROWS: tl.constexpr, HALF: tl.constexpr, LEVELS: tl.constexpr):
    """[ROWS, 1]: one over the root mean square of each head, from its two halves [ROWS, HALF]; HALF = 2^LEVELS."""
    return 1.0 / tl.sqrt((pairs(a * a, ROWS, HALF, LEVELS) + pairs(b * b, ROWS, HALF, LEVELS)) / (2 * HALF) + eps)


@triton.jit
def normed_heads(
    a, b, first, second, eps, kind: tl.constexpr, ROWS: tl.constexpr, HALF: tl.constexpr, LEVELS: tl.constexpr
):
    """The two halves of heads, normalised and weighted by the halves of a weight, as `kind` rounds them."""
    scale = inverse_rms(a, b, eps, ROWS, HALF, LEVELS)
    return (a * scale * first).to(kind).to(tl.float32), (b * scale * second).to(kind).to(tl.float32)


@triton.jit
def head_weights(q_norm, k_norm, offset, is_query, HALF: tl.constexpr):
    """[heads, HALF] twice: the halves of each head's norm weight."""
    half = tl.arange(0, HALF)
    q, k = tl.load(q_norm + half).to(tl.float32)[None, :], tl.load(k_norm + half).to(tl.float32)[None, :]
    first = tl.where(is_query, q, k) + offset
    q, k = tl.load(q_norm + HALF + half).to(tl.float32)[None, :], tl.load(k_norm + HALF + half).to(tl.float32)[None, :]
    return first, tl.where(is_query, q, k) + offset


@triton.jit
def _rotate_kernel(
    x,
    positions,
    cos,
    sin,
    divisors,
    bias,
    q_norm,
    k_norm,
    out,
    eps,
    offset,
    W,
    OUT_W,
    QUERIES,
    TURNED,
    HEADS,
    D: tl.constexpr,
    HP: tl.constexpr,
    LEVELS: tl.constexpr,
    BACK: tl.constexpr,
    DIVIDE: tl.constexpr,
    BIAS: tl.constexpr,
    HEAD_NORM: tl.constexpr,
):
    """The heads of one token: the first ones rotated, or rotated back; all divided before, and a bias added, if asked.

    In place; but where heads are normalised, too, what they were before stays there, and the others are written to out.
    """
    row = tl.program_id(0).to(tl.int64)
    half, head = tl.arange(0, D // 2), tl.arange(0, HP)[:, None]
    real = head < HEADS
    turn = tl.load(positions + row) * (D // 2) + half
    c, s = tl.load(cos + turn).to(tl.float32)[None, :], tl.load(sin + turn).to(tl.float32)[None, :]
    kind = x.dtype.element_ty
    if BACK:
        s = -s
    place = head * D + half[None, :]
    at = x + row * W + place
    a = tl.load(at, mask=real, other=0.0).to(tl.float32)
    b = tl.load(at + D // 2, mask=real, other=0.0).to(tl.float32)
    if DIVIDE:
        divisor = tl.load(divisors + row)
        a, b = a * divisor, b * divisor
        if BIAS:
            a += tl.load(bias + place, mask=real, other=0.0).to(tl.float32)
            b += tl.load(bias + place + D // 2, mask=real, other=0.0).to(tl.float32)
        a, b = a.to(kind).to(tl.float32), b.to(kind).to(tl.float32)
    if HEAD_NORM:
        if DIVIDE:
            tl.store(at, a.to(kind), mask=real)
            tl.store(at + D // 2, b.to(kind), mask=real)
        first, second = head_weights(q_norm, k_norm, offset, head < QUERIES, D // 2)
        a, b = normed_heads(a, b, first, second, eps, kind, HP, D // 2, LEVELS)
        a, b = turned(a, b, c, s)
        at = out + row * OUT_W + place
        tl.store(at, a.to(kind), mask=head < TURNED)
        tl.store(at + D // 2, b.to(kind), mask=head < TURNED)
    else:
        first, second = turned(a, b, c, s)
        tl.store(at, tl.where(head < TURNED, first, a).to(kind), mask=real)
        tl.store(at + D // 2, tl.where(head < TURNED, second, b).to(kind), mask=real)


@triton.jit
def _head_norms_backward_kernel(
    grad,
    raw,
    positions,
    cos,
    sin,
    q_norm,
    k_norm,
    d_norms,
    eps,
    offset,
    M,
    PER,
    W,
    QUERIES,
    TURNED,
    D: tl.constexpr,
    HB: tl.constexpr,
    LEVELS: tl.constexpr,
):
    """Some tokens and HB heads: gradients of rotated heads become those of heads before rotation and norm, in place.

    d_norms [programs, blocks, 2, D]: what the queries and keys among them give to the weights of their norms.
    """
    half, head = tl.arange(0, D // 2), (tl.program_id(1) * HB + tl.arange(0, HB))[:, None]
    real, is_query = head < TURNED, head < QUERIES
    kind = grad.dtype.element_ty
    first, second = head_weights(q_norm, k_norm, offset, is_query, D // 2)
    sum_a, sum_b = tl.zeros([HB, D // 2], tl.float32), tl.zeros([HB, D // 2], tl.float32)
    start = tl.program_id(0) * PER
    for row in range(start, tl.minimum(start + PER, M)):
        turn = tl.load(positions + row) * (D // 2) + half
        c, s = tl.load(cos + turn).to(tl.float32)[None, :], tl.load(sin + turn).to(tl.float32)[None, :]
        place = tl.cast(row, tl.int64) * W + head * D + half[None, :]
        a, b = tl.load(raw + place, mask=real, other=0.0), tl.load(raw + place + D // 2, mask=real, other=0.0)
        g, h = tl.load(grad + place, mask=real, other=0.0), tl.load(grad + place + D // 2, mask=real, other=0.0)
        a, b = a.to(tl.float32), b.to(tl.float32)
        g, h = turned(g.to(tl.float32), h.to(tl.float32), c, -s)
        scale = inverse_rms(a, b, eps, HB, D // 2, LEVELS)
        a, b = a * scale, b * scale
        sum_a += g * a
        sum_b += h * b
        g, h = g * first, h * second
        mean = (tl.sum(g * a, 1) + tl.sum(h * b, 1))[:, None] / D
        tl.store(grad + place, ((g - a * mean) * scale).to(kind), mask=real)
        tl.store(grad + place + D // 2, ((h - b * mean) * scale).to(kind), mask=real)
    at = d_norms + (tl.program_id(0) * tl.num_programs(1) + tl.program_id(1)) * (2 * D) + half
    tl.store(at, tl.sum(tl.where(is_query, sum_a, 0.0), 0))
    tl.store(at + D // 2, tl.sum(tl.where(is_query, sum_b, 0.0), 0))
    tl.store(at + D, tl.sum(tl.where(is_query, 0.0, sum_a), 0))
    tl.store(at + D + D // 2, tl.sum(tl.where(is_query, 0.0, sum_b), 0))


def rotate(
    x: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    heads: int,
    d: int,
    back: bool = False,
    divisors: Tensor | None = None,
    bias: Tensor | None = None,
) -> None:
    """Rotate the first heads of each token of x [N, W] in place, by [positions, D / 2] cosines and sines; or back
    again.

    divisors, bias: all heads are first divided by numbers [N], and then a bias [W] is added.
    """
    n, width = x.shape
    moved = heads if divisors is None else width // d
    padded = triton.next_power_of_2(moved)
    _rotate_kernel[(n,)](
        x,
        positions,
        cos,
        sin,
        divisors,
        bias,
        None,
        None,
        x,
        0.0,
        0.0,
        width,
        width,
        0,
        heads,
        moved,
        D=d,
        HP=padded,
        LEVELS=d.bit_length() - 2,
        BACK=back,
        DIVIDE=divisors is not None,
        BIAS=bias is not None,
        HEAD_NORM=False,
        num_warps=max(1, min(8, padded * d // 512)),
        **APART,
    )


def norm_and_rotate(
    raw: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    of_heads: tuple[int, int, int],
    norms: tuple[Tensor, Tensor],
    eps: float,
    offset: float,
    divisors: Tensor | None,
    bias: Tensor | None,
) -> Tensor:
    """[N, heads x D]: queries and keys of raw [N, W], normalised head by head and rotated.

    raw itself is divided and gets a bias, as `rotate` does it; norms, eps, offset: of queries and of keys
    """
    n, width = raw.shape
    queries, keys, d = of_heads
    moved = queries + keys if divisors is None else width // d
    padded = triton.next_power_of_2(moved)
    out = torch.empty(n, (queries + keys) * d, dtype=raw.dtype, device=raw.device)
    _rotate_kernel[(n,)](
        raw,
        positions,
        cos,
        sin,
        divisors,
        bias,
        *norms,
        out,
        eps,
        offset,
        width,
        out.shape[1],
        queries,
        queries + keys,
        moved,
        D=d,
        HP=padded,
        LEVELS=d.bit_length() - 2,
        BACK=False,
        DIVIDE=divisors is not None,
        BIAS=bias is not None,
        HEAD_NORM=True,
        num_warps=max(1, min(8, padded * d // 512)),
        **APART,
    )
    return out


def norm_and_rotate_backward(
    grad: Tensor,
    raw: Tensor,
    positions: Tensor,
    cos: Tensor,
    sin: Tensor,
    of_heads: tuple[int, int, int],
    norms: tuple[Tensor, Tensor],
    eps: float,
    offset: float,
    learns: bool = True,
) -> tuple[Tensor | None, Tensor | None]:
    """Of `norm_and_rotate`: the gradient [N, W] of its output becomes that of raw, in place; d of the two norms'
    weights, if they learn."""
    n, width = grad.shape
    assert raw.shape == grad.shape and raw.is_contiguous() and grad.is_contiguous()
    queries, keys, d = of_heads
    block = min(BLOCK, triton.next_power_of_2(queries + keys))
    programs, blocks = min(n, PROGRAMS), triton.cdiv(queries + keys, block)
    parts = torch.empty(programs, blocks, 2, d, dtype=torch.float32, device=grad.device)
    _head_norms_backward_kernel[(programs, blocks)](
        grad,
        raw,
        positions,
        cos,
        sin,
        *norms,
        parts,
        eps,
        offset,
        n,
        triton.cdiv(n, programs),
        width,
        queries,
        queries + keys,
        D=d,
        HB=block,
        LEVELS=d.bit_length() - 2,
        num_warps=max(1, min(8, block * d // 512)),
    )
    if not learns:
        return None, None
    of_q, of_k = parts.sum((0, 1))
    return of_q.to(norms[0].dtype), of_k.to(norms[1].dtype)
