"""The learner's GPU kernels (Triton): log-probs from logits, and their gradient; each in one pass."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def _forward_kernel(
    logits, chosen_ptr, lse_ptr, logp_ptr, entropy_ptr, factor, V, ENTROPY: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    m = float("-inf")
    total = 0.0
    weighted = 0.0  # sum of e^(z - m) z
    for start in range(0, V, BLOCK):
        v = start + tl.arange(0, BLOCK)
        z = tl.load(logits + row * V + v, mask=v < V, other=float("-inf")) * factor
        top = tl.maximum(m, tl.max(z, 0))
        e = tl.exp2((z - top) * LOG2E)
        shrink = tl.exp2((m - top) * LOG2E)
        total = total * shrink + tl.sum(e, 0)
        if ENTROPY:
            weighted = weighted * shrink + tl.sum(tl.where(v < V, e * z, 0.0), 0)
        m = top
    lse = m + tl.log2(total) * LN2
    tl.store(lse_ptr + row, lse)
    tl.store(logp_ptr + row, tl.load(logits + row * V + tl.load(chosen_ptr + row)) * factor - lse)
    if ENTROPY:
        tl.store(entropy_ptr + row, lse - weighted / total)


@triton.jit
def _backward_kernel(
    logits, out, chosen_ptr, lse_ptr, entropy_ptr, grad_ptr, grad_entropy_ptr, factor, V,
    ENTROPY: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    v = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    logp = tl.load(logits + row * V + v, mask=v < V, other=0.0) * factor - tl.load(lse_ptr + row)
    g = tl.load(grad_ptr + row)
    slope = -g + tl.zeros([BLOCK], tl.float32)
    if ENTROPY:
        slope -= tl.load(grad_entropy_ptr + row) * (logp + tl.load(entropy_ptr + row))
    d = tl.exp2(logp * LOG2E) * slope
    d = tl.where(v == tl.load(chosen_ptr + row), d + g, d) * factor
    tl.store(out + row * V + v, d.to(out.dtype.element_ty), mask=v < V)


def from_logits(
    logits: Tensor, chosen: Tensor, factor: float, lse: Tensor, logp: Tensor, entropy: Tensor, with_entropy: bool
) -> None:
    """Fill lse, logp and (if asked) entropy [N] from raw logits [N, V] in fp32."""
    n, vocabulary = logits.shape
    size = min(4096, triton.next_power_of_2(vocabulary))
    _forward_kernel[(n,)](
        logits, chosen, lse, logp, entropy, factor, vocabulary, ENTROPY=with_entropy, BLOCK=size, num_warps=8
    )


def d_logits(
    logits: Tensor, chosen: Tensor, factor: float, lse: Tensor, entropy: Tensor, grad: Tensor, grad_entropy: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """[N, V] in `dtype`: d total / d raw logits."""
    n, vocabulary = logits.shape
    out = torch.empty(n, vocabulary, dtype=dtype, device=logits.device)
    size = min(4096, triton.next_power_of_2(vocabulary))
    _backward_kernel[(n, triton.cdiv(vocabulary, size))](
        logits, out, chosen, lse, entropy, grad, grad if grad_entropy is None else grad_entropy, factor, vocabulary,
        ENTROPY=grad_entropy is not None, BLOCK=size, num_warps=8,
    )  # fmt: skip
    return out
