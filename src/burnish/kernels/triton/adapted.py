"""What LoRA adds to a product of a decode step, computed inside the kernel that reads the product (Triton).

made + s (x A^T) B^T, rounded once (kernels/triton/adapters.py)
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.kernels.architectures.spec import Activation
from burnish.kernels.triton.adapters import Adapter
from burnish.kernels.triton.gate import gate_of
from burnish.kernels.triton.norm import APART, divisor_of

TILE = 8, 256, 4  # rows and columns of a program's tile of gate and up, and its warps


@triton.jit
def with_adapter(made, inner, wide, n, N, first, kind: tl.constexpr, RANKS: tl.constexpr, RP: tl.constexpr):
    """made [BM, BN] + inner [BM, RP] times rows n of wide [N, RANKS], columns from `first` on; in fp32, rounded to
    `kind`. Rows from N on and columns from RANKS on are zeros."""
    r = first + tl.arange(0, RP)
    there = (n < N)[:, None] & (r < RANKS)[None, :]
    b = tl.load(wide + n.to(tl.int64)[:, None] * RANKS + r[None, :], mask=there, other=0.0)
    return (made + tl.dot(inner.to(kind), b.T)).to(kind).to(tl.float32)


@triton.jit
def _adapted(
    both, both_row, inner, inner_row, narrow, rows, M, n, N, first, TOTAL,
    RANKS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """[BM, BN] in fp32: columns n of both [M, N] plus rows of inner, from `first` on, times columns n of narrow [RANKS,
    N].

    Few rows: each rank is a product of a column and a row, which needs no tensor cores and none of their layouts.
    """
    inside = n < N
    place = both + rows.to(tl.int64)[:, None] * both_row + n[None, :]
    made = tl.load(place, mask=(rows < M)[:, None] & inside[None, :], other=0.0)
    total = tl.zeros([BM, BN], tl.float32)
    for r in tl.static_range(RANKS):
        real = rows < tl.where(first + r < TOTAL, M, 0)  # the last parts may have fewer ranks
        low = tl.load(inner + rows * inner_row + first + r, mask=real, other=0.0)
        b = tl.load(narrow + r * N + n, mask=inside, other=0.0)
        total += low.to(tl.float32)[:, None] * b.to(tl.float32)[None, :]
    return (made.to(tl.float32) + total).to(made.dtype).to(tl.float32)


@triton.jit
def _gate_kernel(
    both, inner, narrow, squares, out, M, N, eps, both_row, inner_row, up_first, TOTAL,
    K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr, DIVIDE: tl.constexpr, GELU: tl.constexpr,
    RANKS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """A tile of out [M, N] = act(gate) * up, from both [M, 2 N] and what the adapters of gate and up add to it."""
    rows, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    inside = n < N
    kind = out.dtype.element_ty
    of_gate, of_up = tl.where(inside, n, 2 * N), tl.where(inside, N + n, 2 * N)
    gate = _adapted(both, both_row, inner, inner_row, narrow, rows, M, of_gate, 2 * N, 0, TOTAL, RANKS, BM, BN)
    up = _adapted(both, both_row, inner, inner_row, narrow, rows, M, of_up, 2 * N, up_first, TOTAL, RANKS, BM, BN)
    if DIVIDE:
        p = tl.arange(0, PP)
        there = (rows < M)[:, None] & (p < P)[None, :]
        parts = tl.load(squares + rows.to(tl.int64)[:, None] * P + p[None, :], mask=there, other=0.0)
        divisor = divisor_of(parts, eps, K, BM, PP, LEVELS)
        gate, up = (gate * divisor).to(kind), (up * divisor).to(kind)
    place = out + rows.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(place, gate_of(gate, up, GELU).to(kind), mask=(rows < M)[:, None] & inside[None, :])


def gate_adapted(
    both: Tensor,
    inner: Tensor,
    adapter: Adapter,
    activation: Activation,
    out: Tensor | None = None,
    late: tuple[Tensor, dict[str, int], int, float] | None = None,
) -> Tensor:
    """[M, N]: act(gate) * up, from gate and up side by side [M, 2 N], to which the adapter still adds inner [M, ranks]
    times its B.

    out: whose first M rows are written
    late: what rows are still to be divided by: sums of squares, into how many parts they are cut, K and eps of the norm
    """
    m, n = len(both), both.shape[1] // 2
    out = torch.empty(m, n, dtype=both.dtype, device=both.device) if out is None else out
    squares, parts, width, eps = (both, {"P": 1, "PP": 1, "LEVELS": 0}, 1, 0.0) if late is None else late
    _, up_first = adapter.firsts([n, n])
    rows, columns, warps = TILE
    _gate_kernel[(triton.cdiv(m, rows), triton.cdiv(n, columns))](
        both, inner, adapter.narrow, squares, out, m, n, eps, both.stride(0), inner.stride(0), up_first, adapter.rank,
        K=width, **parts, DIVIDE=late is not None, GELU=activation == "gelu_tanh", RANKS=adapter.widest,
        BM=rows, BN=columns, num_warps=warps, **APART,
    )  # fmt: skip
    return out


def padded(ranks: int) -> int:
    """As many ranks as a kernel reads: a power of two, and what the device multiplies at once."""
    return max(16, triton.next_power_of_2(ranks))
