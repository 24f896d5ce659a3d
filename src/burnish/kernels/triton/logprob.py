"""The learner's GPU kernels (Triton): log-probs from logits, and their gradient; each in one pass.

The vocabulary is summed block by block, then over blocks; the sampler does it with the same functions, to the same
bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.kernels.triton.norm import APART

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@triton.jit
def block_sum(z):
    """The largest of a block of scaled logits, and the sum of e^(z - largest); also each e^(z - largest)."""
    top = tl.max(z, 0)
    e = tl.exp2((z - top) * LOG2E)
    return top, tl.sum(e, 0), e


@triton.jit
def together(tops, sums):
    """The largest logit of all blocks, and each block's share of the sum of e^(z - largest)."""
    highest = tl.max(tops, 0)
    return highest, sums * tl.exp2((tops - highest) * LOG2E)


@triton.jit
def logp_of(z, highest, total):
    """The log-prob of a token with scaled logit z."""
    return z - highest - tl.log2(total) * LN2


@triton.jit
def _forward_kernel(
    logits, chosen_ptr, lse_ptr, logp_ptr, entropy_ptr, factor, V,
    ENTROPY: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    b = tl.arange(0, BLOCKS)
    tops = tl.full([BLOCKS], float("-inf"), tl.float32)
    sums = tl.zeros([BLOCKS], tl.float32)
    means = tl.zeros([BLOCKS], tl.float32)  # sums of e^(z - top) z
    for start in range(0, V, BLOCK):
        v = start + tl.arange(0, BLOCK)
        z = tl.load(logits + row * V + v, mask=v < V, other=float("-inf")) * factor
        top, total, e = block_sum(z)
        here = b == start // BLOCK
        tops, sums = tl.where(here, top, tops), tl.where(here, total, sums)
        if ENTROPY:
            means = tl.where(here, tl.sum(tl.where(v < V, e * z, 0.0), 0), means)
    highest, weight = together(tops, sums)
    total = tl.sum(weight, 0)
    lse = highest + tl.log2(total) * LN2
    tl.store(lse_ptr + row, lse)
    z = tl.load(logits + row * V + tl.load(chosen_ptr + row)) * factor
    tl.store(logp_ptr + row, logp_of(z, highest, total))
    if ENTROPY:
        _, weight = together(tops, means)
        tl.store(entropy_ptr + row, lse - tl.sum(weight, 0) / total)


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


SUMMING = {"num_warps": 8, **APART}


def cut(vocabulary: int) -> tuple[int, int]:
    """The size of a block of the vocabulary, and how many there are."""
    size = min(4096, triton.next_power_of_2(vocabulary))
    return size, triton.cdiv(vocabulary, size)


def from_logits(
    logits: Tensor, chosen: Tensor, factor: float, lse: Tensor, logp: Tensor, entropy: Tensor, with_entropy: bool
) -> None:
    """Fill lse, logp and (if asked) entropy [N] from raw logits [N, V] in fp32."""
    n, vocabulary = logits.shape
    size, blocks = cut(vocabulary)
    _forward_kernel[(n,)](
        logits, chosen, lse, logp, entropy, factor, vocabulary,
        ENTROPY=with_entropy, BLOCK=size, BLOCKS=triton.next_power_of_2(blocks), **SUMMING,
    )  # fmt: skip


def d_logits(
    logits: Tensor, chosen: Tensor, factor: float, lse: Tensor, entropy: Tensor, grad: Tensor,
    grad_entropy: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:  # fmt: skip
    """[N, V] in `dtype`: d total / d raw logits."""
    n, vocabulary = logits.shape
    out = torch.empty(n, vocabulary, dtype=dtype, device=logits.device)
    size, blocks = cut(vocabulary)
    _backward_kernel[(n, blocks)](
        logits, out, chosen, lse, entropy, grad, grad if grad_entropy is None else grad_entropy, factor, vocabulary,
        ENTROPY=grad_entropy is not None, BLOCK=size, num_warps=8,
    )  # fmt: skip
    return out
