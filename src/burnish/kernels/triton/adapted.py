"""What LoRA adds to a product, computed inside the matmul itself (Triton): no kernel of its own.

made + s (x A^T) B^T, rounded as the trainer's sum is (kernels/triton/adapters.py)
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def with_adapter(made, inner, wide, n, N, first, kind: tl.constexpr, RANKS: tl.constexpr, RP: tl.constexpr):
    """made [BM, BN] + inner [BM, RP] times rows n of wide [N, RANKS], columns from `first` on; in fp32, rounded to
    `kind`. Rows from N on and columns from RANKS on are zeros."""
    r = first + tl.arange(0, RP)
    there = (n < N)[:, None] & (r < RANKS)[None, :]
    b = tl.load(wide + n.to(tl.int64)[:, None] * RANKS + r[None, :], mask=there, other=0.0)
    return (made + tl.dot(inner.to(kind), b.T)).to(kind).to(tl.float32)


def padded(ranks: int) -> int:
    """As many ranks as a kernel reads: a power of two, and what the device multiplies at once."""
    return max(16, triton.next_power_of_2(ranks))
