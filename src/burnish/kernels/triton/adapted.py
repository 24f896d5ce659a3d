"""What LoRA adds to a product, computed inside the kernel that reads the product (Triton): no kernel of its own.

made + s (x A^T) B^T, rounded as the trainer's sum is (kernels/triton/adapters.py)
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.kernels.architectures.spec import Activation
from burnish.kernels.triton.adapters import Adapter
from burnish.kernels.triton.gate import gate_of, gate_slopes
from burnish.kernels.triton.norm import APART, divisor_of

# rows and columns of a program's tile, and its warps: of the rows of a decode step, and of a pack
TILE = 16, 128, 4
PACK_TILE = 64, 64, 4
FEW = 1024  # rows up to which they are those of a decode step
# where the numbers by which rows are still to be divided come from
NOWHERE, SQUARES, DIVISORS = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def with_adapter(made, inner, wide, n, N, first, kind: tl.constexpr, RANKS: tl.constexpr, RP: tl.constexpr):
    """made [BM, BN] + inner [BM, RP] times rows n of wide [N, RANKS], columns from `first` on; in fp32, rounded to
    `kind`. Rows from N on and columns from RANKS on are zeros."""
    r = first + tl.arange(0, RP)
    there = (n < N)[:, None] & (r < RANKS)[None, :]
    b = tl.load(wide + n.to(tl.int64)[:, None] * RANKS + r[None, :], mask=there, other=0.0)
    return (made + tl.dot(inner.to(kind), b.T)).to(kind).to(tl.float32)


@triton.jit
def _low_rank(inner, inner_row, rows, M, first, RANKS, narrow, n, N, WIDEST: tl.constexpr, RP: tl.constexpr):
    """[BM, BN] in fp32: rows of inner, columns from `first` on, times columns n of narrow [WIDEST, N]."""
    r = tl.arange(0, RP)
    low = inner + rows.to(tl.int64)[:, None] * inner_row + (first + r)[None, :]
    low = tl.load(low, mask=(rows < M)[:, None] & (r < WIDEST)[None, :] & (first + r < RANKS)[None, :], other=0.0)
    there = (r < WIDEST)[:, None] & (n < N)[None, :]
    return tl.dot(low, tl.load(narrow + r.to(tl.int64)[:, None] * N + n[None, :], mask=there, other=0.0))


@triton.jit
def _gate_and_up(
    both, both_row, inner, inner_row, narrow, divide_by, rows, M, n, N, eps, up_first, RANKS,
    K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr, BY: tl.constexpr,
    WIDEST: tl.constexpr, RP: tl.constexpr, BM: tl.constexpr,
):  # fmt: skip
    """Columns n of gate and of up, in fp32 but rounded: what the product made, what the adapters add (WIDEST 0:
    nothing), divided."""
    kind: tl.constexpr = both.dtype.element_ty
    there = (rows < M)[:, None] & (n < N)[None, :]
    place = both + rows.to(tl.int64)[:, None] * both_row + n[None, :]
    gate = tl.load(place, mask=there, other=0.0).to(tl.float32)
    up = tl.load(place + N, mask=there, other=0.0).to(tl.float32)
    if WIDEST:
        of_gate, of_up = tl.where(n < N, n, 2 * N), tl.where(n < N, N + n, 2 * N)
        gate += _low_rank(inner, inner_row, rows, M, 0, RANKS, narrow, of_gate, 2 * N, WIDEST, RP)
        up += _low_rank(inner, inner_row, rows, M, up_first, RANKS, narrow, of_up, 2 * N, WIDEST, RP)
        gate, up = gate.to(kind).to(tl.float32), up.to(kind).to(tl.float32)
    if BY == SQUARES:
        p = tl.arange(0, PP)
        parts = divide_by + rows.to(tl.int64)[:, None] * P + p[None, :]
        parts = tl.load(parts, mask=(rows < M)[:, None] & (p < P)[None, :], other=0.0)
        divisor = divisor_of(parts, eps, K, BM, PP, LEVELS)
        gate, up = (gate * divisor).to(kind).to(tl.float32), (up * divisor).to(kind).to(tl.float32)
    if BY == DIVISORS:
        divisor = tl.load(divide_by + rows, mask=rows < M, other=0.0)[:, None]
        gate, up = (gate * divisor).to(kind).to(tl.float32), (up * divisor).to(kind).to(tl.float32)
    return gate, up


@triton.jit
def _gate_kernel(
    both, inner, narrow, divide_by, out, M, N, eps, both_row, inner_row, up_first, RANKS,
    K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr, BY: tl.constexpr, GELU: tl.constexpr,
    WIDEST: tl.constexpr, RP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """A tile of out [M, N] = act(gate) * up, from both [M, 2 N] and what the adapters of gate and up add to it."""
    rows, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    gate, up = _gate_and_up(
        both, both_row, inner, inner_row, narrow, divide_by, rows, M, n, N, eps, up_first, RANKS,
        K, P, PP, LEVELS, BY, WIDEST, RP, BM,
    )  # fmt: skip
    there = (rows < M)[:, None] & (n < N)[None, :]
    place = out + rows.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(place, gate_of(gate, up, GELU).to(out.dtype.element_ty), mask=there)


@triton.jit
def _gate_backward_kernel(
    both, inner, narrow, divisors, grad, d_low, a, d_both, out, M, N, both_row, inner_row, up_first, RANKS, LOW_RANKS,
    BY: tl.constexpr, GELU: tl.constexpr, WIDEST: tl.constexpr, RP: tl.constexpr,
    LOW: tl.constexpr, LP: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """A tile of d gate, d up and act(gate) * up again.

    grad [M, N] is still to get what the adapter of `down` gives it: d_low [M, LOW] times a [LOW, N]
    """
    rows, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    gate, up = _gate_and_up(
        both, both_row, inner, inner_row, narrow, divisors, rows, M, n, N, 0.0, up_first, RANKS,
        1, 1, 1, 0, BY, WIDEST, RP, BM,
    )  # fmt: skip
    there = (rows < M)[:, None] & (n < N)[None, :]
    place = rows.to(tl.int64)[:, None] * N + n[None, :]
    g = tl.load(grad + place, mask=there, other=0.0).to(tl.float32)
    if LOW:
        g += _low_rank(d_low, LOW_RANKS, rows, M, 0, LOW_RANKS, a, n, N, LOW, LP)
    act, slope = gate_slopes(gate, GELU)
    kind = out.dtype.element_ty
    tl.store(out + place, (act * up).to(kind), mask=there)
    place += rows.to(tl.int64)[:, None] * N
    tl.store(d_both + place, (g * up * slope).to(kind), mask=there)
    tl.store(d_both + place + N, (g * act).to(kind), mask=there)


def _tiles(m: int, n: int) -> tuple[tuple[int, int], dict[str, int]]:
    rows, columns, warps = TILE if m <= FEW else PACK_TILE
    return (triton.cdiv(m, rows), triton.cdiv(n, columns)), {"BM": rows, "BN": columns, "num_warps": warps}


def gate_adapted(
    both: Tensor,
    inner: Tensor,
    adapter: Adapter,
    activation: Activation,
    out: Tensor | None = None,
    late: tuple[Tensor, dict[str, int], int, float] | None = None,
    divisors: Tensor | None = None,
) -> Tensor:
    """[M, N]: act(gate) * up, from gate and up side by side [M, 2 N], to which the adapter still adds inner [M, ranks]
    times its B.

    out: whose first M rows are written
    late: what rows are still to be divided by: sums of squares, into how many parts they are cut, K and eps of the norm
    divisors: the same as numbers [M]
    """
    m, n = len(both), both.shape[1] // 2
    out = torch.empty(m, n, dtype=both.dtype, device=both.device) if out is None else out
    by = NOWHERE if divisors is None else DIVISORS
    divide_by, parts, width, eps = (both if divisors is None else divisors), {"P": 1, "PP": 1, "LEVELS": 0}, 1, 0.0
    if late is not None:
        by, (divide_by, parts, width, eps) = SQUARES, late
    _, up_first = adapter.firsts([n, n])
    grid, how = _tiles(m, n)
    how |= {"BY": by.value, "GELU": activation == "gelu_tanh"}
    how |= {"WIDEST": adapter.widest, "RP": padded(adapter.widest)}
    _gate_kernel[grid](
        both, inner, adapter.narrow, divide_by, out, m, n, eps, both.stride(0), inner.stride(0), up_first, adapter.rank,
        K=width, **parts, **how, **APART,
    )  # fmt: skip
    return out


def gate_adapted_backward(
    both: Tensor,
    divisors: Tensor | None,
    grad: Tensor,
    activation: Activation,
    adapter: tuple[Adapter, Tensor] | None,
    down: tuple[Adapter, Tensor] | None,
) -> tuple[Tensor, Tensor]:
    """As `gate_backward`, where gate and up or the product after them have an adapter.

    adapter: of gate and up, with x A^T, whose part `both` does not have
    down: of the product that follows, with d (x A^T), whose part `grad` does not have
    """
    m, n = grad.shape
    d_both, out = torch.empty_like(both), torch.empty_like(grad)
    grid, how = _tiles(m, n)
    how |= {"BY": (NOWHERE if divisors is None else DIVISORS).value, "GELU": activation == "gelu_tanh"}
    inner, narrow, up_first, ranks, widest = both, both, 0, 0, 0
    if adapter is not None:
        its, inner = adapter
        narrow, up_first, ranks, widest = its.narrow, its.firsts([n, n])[1], its.rank, its.widest
    d_low, a, low = (grad, grad, 0) if down is None else (down[1], down[0].a, down[0].rank)
    how |= {"WIDEST": widest, "RP": padded(widest), "LOW": low, "LP": padded(low)}
    _gate_backward_kernel[grid](
        both, inner, narrow, both if divisors is None else divisors, grad, d_low, a, d_both, out,
        m, n, both.stride(0), inner.stride(0), up_first, ranks, low, **how,
    )  # fmt: skip
    return d_both, out


def padded(ranks: int) -> int:
    """As many ranks as a kernel reads: a power of two, and what the device multiplies at once."""
    return max(16, triton.next_power_of_2(max(1, ranks)))
