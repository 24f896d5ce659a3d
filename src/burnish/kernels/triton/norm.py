"""GPU kernels (Triton) of root-mean-square norms, forward and backward, with the sums around them.

    norm(x) = x / sqrt(mean x^2 + eps) * (offset + w)

Numbers are rounded where they are stored and nowhere else; sums over tokens are taken in fp32, in a fixed order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# for kernels whose bits another kernel must find again: a product and the sum behind it never become one operation
# unseen
APART = {"enable_fp_fusion": False}
PROGRAMS = 1584  # that share the rows of a backward norm: twelve for each multiprocessor of an H200


@triton.jit
def pairs(x, ROWS: tl.constexpr, N: tl.constexpr, LEVELS: tl.constexpr):
    """[ROWS, N / 2^LEVELS]: sums of neighbours in x [ROWS, N], pair by pair: in one order, wherever its numbers are
    held."""
    for level in tl.static_range(LEVELS):
        x = tl.sum(tl.reshape(x, [ROWS, N >> (level + 1), 2]), 2)
    return x


@triton.jit
def divisor_of(parts, eps, K: tl.constexpr, ROWS: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr):
    """[ROWS, 1]: one over the root mean square of each row, from sums of squares [ROWS, PP] of its parts."""
    return 1.0 / tl.sqrt(pairs(parts, ROWS, PP, LEVELS) / K + eps)


@triton.jit
def _add_norm_kernel(
    x,
    y,
    post,
    norm,
    inner,
    narrow,
    out,
    total_ptr,
    eps,
    offset,
    y_row,
    inner_row,
    K: tl.constexpr,
    BK: tl.constexpr,
    ADD: tl.constexpr,
    POST: tl.constexpr,
    RANKS: tl.constexpr,
):
    """One row: total = x + y, or x + post(y), where post is a norm; and out = norm(total).

    RANKS: of the adapter whose part, inner narrow, is still to be added to y; 0: there is none
    """
    k = tl.arange(0, BK)
    inside = k < K
    row = tl.program_id(0).to(tl.int64)
    place = row * K + k
    kind = x.dtype.element_ty
    total = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        more = tl.load(y + row * y_row + k, mask=inside, other=0.0).to(tl.float32)
        if RANKS:
            adapted = tl.zeros([BK], tl.float32)
            for r in tl.static_range(RANKS):
                low = tl.load(inner + row * inner_row + r).to(tl.float32)
                adapted += low * tl.load(narrow + r * K + k, mask=inside, other=0.0).to(tl.float32)
            more = (more + adapted).to(kind).to(tl.float32)
        if POST:
            more = more * (1.0 / tl.sqrt(tl.sum(more * more, 0) / K + eps))
            weight = tl.load(post + k, mask=inside, other=0.0).to(tl.float32) + offset
            more = (more * weight).to(kind).to(tl.float32)
        total += more
        tl.store(total_ptr + place, total.to(kind), mask=inside)
        total = total.to(kind).to(tl.float32)  # what the backward will see
    unit = total * (1.0 / tl.sqrt(tl.sum(total * total, 0) / K + eps))
    weight = tl.load(norm + k, mask=inside, other=0.0).to(tl.float32) + offset
    tl.store(out + place, (unit * weight).to(kind), mask=inside)


@triton.jit
def _norm_backward_kernel(
    x,
    norm,
    grad,
    more,
    d_x,
    out,
    d_norm,
    eps,
    offset,
    M,
    PER,
    K: tl.constexpr,
    BK: tl.constexpr,
    MORE: tl.constexpr,
    AGAIN: tl.constexpr,
    OFFSET: tl.constexpr,
    LEARNS: tl.constexpr,
):
    """Rows of one program: d x + more, the normalised rows again, if asked, and the sum of what is d norm, if that is
    trained.

    The next row is asked for before this one is worked on. Without an offset the weights stay in bf16: in fp32 they
    would take registers that the loop needs.
    """
    k = tl.arange(0, BK)
    inside = k < K
    weight = tl.load(norm + k, mask=inside, other=0.0).to(tl.float32)
    if OFFSET:
        weight += offset
    kind = x.dtype.element_ty
    total = tl.zeros([BK], tl.float32)
    row = tl.program_id(0) * PER
    end = tl.minimum(row + PER, M)
    place, stop = row.to(tl.int64) * K + k, end.to(tl.int64) * K
    seen = inside & (place < stop)
    next_x, next_grad = tl.load(x + place, mask=seen, other=0.0), tl.load(grad + place, mask=seen, other=0.0)
    next_more = next_grad
    if MORE:
        next_more = tl.load(more + place, mask=seen, other=0.0)
    for _ in range(row, end):
        value, g, plus = next_x.to(tl.float32), next_grad.to(tl.float32), next_more.to(tl.float32)
        then = place + K
        seen = inside & (then < stop)
        next_x, next_grad = tl.load(x + then, mask=seen, other=0.0), tl.load(grad + then, mask=seen, other=0.0)
        next_more = next_grad
        if MORE:
            next_more = tl.load(more + then, mask=seen, other=0.0)
        scale = 1.0 / tl.sqrt(tl.sum(value * value, 0) / K + eps)
        unit = value * scale
        if LEARNS:
            total += g * unit
        slope = g * weight
        d = (slope - unit * (tl.sum(slope * unit, 0) / K)) * scale
        if MORE:
            d += plus
        tl.store(d_x + place, d.to(kind), mask=inside)
        if AGAIN:
            tl.store(out + place, (unit * weight).to(kind), mask=inside)
        place = then
    if LEARNS:
        tl.store(d_norm + tl.program_id(0) * K + k, total, mask=inside)


@triton.jit
def _add_kernel(
    x,
    y,
    norm,
    total_ptr,
    z,
    divisors,
    M,
    K: tl.constexpr,
    eps,
    BK: tl.constexpr,
    LEVELS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """Some rows of the trainer's: total = x + y, z for the norm that follows, and what divides the product after it."""
    k, rows = tl.arange(0, BK), tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (rows < M)[:, None] & (k < K)[None, :]
    place = rows.to(tl.int64)[:, None] * K + k[None, :]
    kind = z.dtype.element_ty
    total = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    total = (total + tl.load(y + place, mask=inside, other=0.0).to(tl.float32)).to(kind)
    tl.store(total_ptr + place, total, mask=inside)
    total = total.to(tl.float32)
    weighted = total * tl.load(norm + k, mask=k < K, other=0.0).to(tl.float32)[None, :]
    tl.store(z + place, weighted.to(kind), mask=inside)
    sums = tl.reshape(pairs(total * total, ROWS, BK, LEVELS), [ROWS])
    tl.store(divisors + rows, 1.0 / tl.sqrt(sums / K + eps), mask=rows < M)


def _warps(block: int) -> int:
    return 4 if block <= 2048 else 8


def add_norm(
    x: Tensor,
    y: Tensor | None,
    norm: Tensor,
    eps: float,
    total: Tensor | None = None,
    post: Tensor | None = None,
    offset: float = 0.0,
    owed: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """[M, K]: norm(x + y); x + y is kept in `total`, which may be x.

    post: the weight of a norm that y goes through first
    owed: inner [M, R] and narrow [R, K], whose product is added to y before all else (kernels/triton/adapters.py)
    """
    m, width = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(width)
    more, its = (x if y is None else y), (norm if post is None else post)
    inner, narrow = (more, more) if owed is None else owed
    how = {"K": width, "BK": block, "ADD": y is not None, "POST": post is not None}
    how |= {"RANKS": 0, "num_warps": _warps(block)} if owed is None else {"RANKS": len(narrow), "num_warps": 8}
    given = x, more, its, norm, inner, narrow, out, x if total is None else total
    _add_norm_kernel[(m,)](*given, eps, offset, more.stride(0), inner.stride(0), **how, **APART)
    return out


def norm_backward(
    x: Tensor,
    norm: Tensor,
    eps: float,
    grad: Tensor,
    more: Tensor | None,
    offset: float = 0.0,
    again: bool = True,
    learns: bool = True,
) -> tuple[Tensor, Tensor | None, Tensor]:
    """Of a norm of x [M, K]: d x + more, d norm (None unless it learns), and its output again, if that is asked
    for."""
    m, width = x.shape
    block = triton.next_power_of_2(width)
    programs = min(m, PROGRAMS)
    d_x = torch.empty_like(x)
    out = torch.empty_like(x) if again else d_x
    d_norm = torch.empty(programs, width, dtype=torch.float32, device=x.device) if learns else d_x
    how = {"K": width, "BK": block, "MORE": more is not None, "AGAIN": again, "OFFSET": offset != 0.0, "LEARNS": learns}
    how["num_warps"] = 1 if block <= 1024 else _warps(block)
    given = x, norm, grad, grad if more is None else more, d_x, out, d_norm
    _norm_backward_kernel[(programs,)](*given, eps, offset, m, triton.cdiv(m, programs), **how)
    return d_x, d_norm.sum(0).to(norm.dtype) if learns else None, out


def add_weighted(x: Tensor, y: Tensor, norm: Tensor, eps: float, total: Tensor) -> tuple[Tensor, Tensor]:
    """z [M, K] of x + y (kept in `total`) and the norm that follows, and [M] one over the root mean squares of x +
    y."""
    z, (m, width) = torch.empty_like(x), x.shape
    divisors = torch.empty(m, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(width)
    _add_kernel[(triton.cdiv(m, 4),)](
        x,
        y,
        norm,
        total,
        z,
        divisors,
        m,
        width,
        eps,
        BK=block,
        LEVELS=block.bit_length() - 1,
        ROWS=4,
        num_warps=4,
        **APART,
    )
    return z, divisors
