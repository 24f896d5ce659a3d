"""What LoRA adds to a product, computed inside the kernel that reads the product (Triton): no kernel of its own.

made + s (x A^T) B^T, rounded as the trainer's sum is (kernels/triton/adapters.py)
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.kernels.architectures.spec import Activation
from burnish.kernels.triton.adapters import Adapter
from burnish.kernels.triton.gate import gate_of
from burnish.kernels.triton.norm import APART, divisor_of

TILE = 16, 128, 4  # rows and columns of a program's tile, and its warps; not yet measured


@triton.jit
def with_adapter(made, inner, wide, n, N, first, kind: tl.constexpr, RANKS: tl.constexpr, RP: tl.constexpr):
    """made [BM, BN] + inner [BM, RP] times rows n of wide [N, RANKS], columns from `first` on; in fp32, rounded to
    `kind`. Rows from N on and columns from RANKS on are zeros."""
    r = first + tl.arange(0, RP)
    there = (n < N)[:, None] & (r < RANKS)[None, :]
    b = tl.load(wide + n.to(tl.int64)[:, None] * RANKS + r[None, :], mask=there, other=0.0)
    return (made + tl.dot(inner.to(kind), b.T)).to(kind).to(tl.float32)


@triton.jit
def _adapted(both, inner, wide, rows, M, n, N, first, RANKS: tl.constexpr, RP: tl.constexpr):
    """[BM, BN] in fp32: columns n of both [M, N] with what their adapter adds."""
    r = first + tl.arange(0, RP)
    there, ranks = (rows < M)[:, None] & (n < N)[None, :], (rows < M)[:, None] & (r < RANKS)[None, :]
    low = tl.load(inner + rows.to(tl.int64)[:, None] * RANKS + r[None, :], mask=ranks, other=0.0)
    made = tl.load(both + rows.to(tl.int64)[:, None] * N + n[None, :], mask=there, other=0.0)
    return with_adapter(made.to(tl.float32), low, wide, n, N, first, made.dtype, RANKS, RP)


@triton.jit
def _gate_kernel(
    both, inner, wide, squares, out, M, N, eps, up_first,
    K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr, DIVIDE: tl.constexpr, GELU: tl.constexpr,
    RANKS: tl.constexpr, RP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """A tile of out [M, N] = act(gate) * up, from both [M, 2 N] and what the adapters of gate and up add to it."""
    rows, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    kind = out.dtype.element_ty
    inside = n < N
    gate = _adapted(both, inner, wide, rows, M, tl.where(inside, n, 2 * N), 2 * N, 0, RANKS, RP)
    up = _adapted(both, inner, wide, rows, M, tl.where(inside, N + n, 2 * N), 2 * N, up_first, RANKS, RP)
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
    how: dict[str, Any] = {"DIVIDE": late is not None, "GELU": activation == "gelu_tanh", "BM": rows, "BN": columns}
    how |= {"RANKS": adapter.rank, "RP": padded(adapter.widest), "num_warps": warps}
    _gate_kernel[(triton.cdiv(m, rows), triton.cdiv(n, columns))](
        both, inner, adapter.wide, squares, out, m, n, eps, up_first, K=width, **parts, **how, **APART
    )
    return out


def padded(ranks: int) -> int:
    """As many ranks as a kernel reads: a power of two, and what the device multiplies at once."""
    return max(16, triton.next_power_of_2(ranks))
