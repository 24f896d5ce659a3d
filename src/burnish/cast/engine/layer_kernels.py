"""The GPU kernels (Triton) of one decoder layer for rows that each add a token: what lies between its matrix products.

Numbers are rounded where they are stored and nowhere else, as in a compiled layer of the trainer.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _add_norm_kernel(x, y, norm, out, eps, K: tl.constexpr, BK: tl.constexpr, ADD: tl.constexpr):
    """One row: x += y, and out = x / rms(x) * norm."""
    k = tl.arange(0, BK)
    inside = k < K
    place = tl.program_id(0).to(tl.int64) * K + k
    kind = x.dtype.element_ty
    total = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        total += tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(x + place, total.to(kind), mask=inside)
    unit = total * (1.0 / tl.sqrt(tl.sum(total * total, 0) / K + eps))
    tl.store(out + place, (unit * tl.load(norm + k, mask=inside, other=0.0).to(tl.float32)).to(kind), mask=inside)


@triton.jit
def _gate_kernel(both, out, N, BLOCK: tl.constexpr):
    """out [M, N] = silu(gate) * up, from [M, 2 N]."""
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = n < N
    gate = tl.load(both + row * 2 * N + n, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(both + row * 2 * N + N + n, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * N + n, (gate / (1.0 + tl.exp(-gate)) * up).to(out.dtype.element_ty), mask=inside)


def add_norm(x: Tensor, y: Tensor | None, norm: Tensor, eps: float) -> Tensor:
    """[M, K]: x + y (which becomes x), normalised and weighted."""
    m, width = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(width)
    warps = 4 if block <= 2048 else 8
    _add_norm_kernel[(m,)](
        x, x if y is None else y, norm, out, eps, K=width, BK=block, ADD=y is not None, num_warps=warps
    )  # fmt: skip
    return out


def gate(both: Tensor) -> Tensor:
    """[M, N]: silu(gate) * up, from gate and up side by side [M, 2 N]."""
    m, n = len(both), both.shape[1] // 2
    out = torch.empty(m, n, dtype=both.dtype, device=both.device)
    block = min(1024, triton.next_power_of_2(n))
    _gate_kernel[(m, triton.cdiv(n, block))](both, out, n, BLOCK=block, num_warps=4)
    return out
