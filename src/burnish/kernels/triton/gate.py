"""GPU kernels (Triton) of the gate of an MLP, act(gate) * up, forward and backward.

    silu(g) = g sigmoid(g)
    gelu(g) = g sigmoid(2 u(g)),  u(g) = sqrt(2 / pi) (g + 0.044715 g^3)

The second is the approximation by tanh, because 1 + tanh(u) = 2 sigmoid(2 u).
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.kernels.architectures.spec import Activation
from burnish.kernels.triton.norm import APART, divisor_of

# numbers that a program has, and its warps, as measured on an H200
GATE = 512, 2
GATE_BACK = 2048, 8


GELU_SCALE = tl.constexpr(1.5957691216057308)  # 2 sqrt(2 / pi)
GELU_CUBE = tl.constexpr(0.044715)
GELU_SLOPE = tl.constexpr(3 * 0.044715 * 1.5957691216057308)


@triton.jit
def gate_of(gate, up, GELU: tl.constexpr):
    """act(gate) * up in fp32."""
    gate = gate.to(tl.float32)
    bent = gate
    if GELU:
        bent = (gate + gate * gate * gate * GELU_CUBE) * GELU_SCALE
    return gate / (1.0 + tl.exp(-bent)) * up.to(tl.float32)


@triton.jit
def gate_slopes(gate, GELU: tl.constexpr):
    """act(gate), and its derivative, in fp32."""
    if GELU:
        share = 1.0 / (1.0 + tl.exp((gate + gate * gate * gate * GELU_CUBE) * -GELU_SCALE))
        slope = share + gate * share * (1.0 - share) * (GELU_SCALE + gate * gate * GELU_SLOPE)
        act = gate * share
    else:
        share = 1.0 / (1.0 + tl.exp(-gate))
        act = gate * share
        slope = share * (1.0 + gate - act)
    return act, slope


@triton.jit
def _divided(ptr, inside, divisor, DIVIDE: tl.constexpr):
    """Numbers of one row that are still to be divided, or are already."""
    x = tl.load(ptr, mask=inside, other=0.0)
    if DIVIDE:
        x = (x.to(tl.float32) * divisor).to(x.dtype)
    return x


@triton.jit
def _gate_row(both, both_row, out, row, divisor, N, DIVIDE: tl.constexpr, GELU: tl.constexpr, BLOCK: tl.constexpr):
    """A block of one row: out [M, N] = act(gate) * up, from [M, 2 N]."""
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = n < N
    gate = _divided(both + row * both_row + n, inside, divisor, DIVIDE)
    up = _divided(both + row * both_row + N + n, inside, divisor, DIVIDE)
    tl.store(out + row * N + n, gate_of(gate, up, GELU).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gate_kernel(both, divisors, out, N, both_row, DIVIDE: tl.constexpr, GELU: tl.constexpr, BLOCK: tl.constexpr):
    """The gate of rows, which are divided by numbers that lie ready, or not at all."""
    row = tl.program_id(0).to(tl.int64)
    divisor = tl.load(divisors + row) if DIVIDE else 1.0
    _gate_row(both, both_row, out, row, divisor, N, DIVIDE, GELU, BLOCK)


@triton.jit
def _gate_rows_kernel(
    both,
    squares,
    out,
    N,
    both_row,
    eps,
    K: tl.constexpr,
    P: tl.constexpr,
    PP: tl.constexpr,
    LEVELS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """The gate of rows, which are divided by the root mean squares of x [M, K]: `squares` are sums of parts of its
    rows."""
    row, p = tl.program_id(0).to(tl.int64), tl.arange(0, PP)[None, :]
    parts = tl.load(squares + row * P + p, mask=p < P, other=0.0)
    divisor = tl.reshape(divisor_of(parts, eps, K, 1, PP, LEVELS), [1])
    _gate_row(both, both_row, out, row, divisor, N, True, False, BLOCK)


@triton.jit
def _gate_backward_kernel(
    both, divisors, grad, d_both, out, N, DIVIDE: tl.constexpr, GELU: tl.constexpr, BLOCK: tl.constexpr
):
    """d gate and d up side by side, and act(gate) * up again."""
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = n < N
    place = row * 2 * N + n
    divisor = tl.load(divisors + row) if DIVIDE else 1.0
    gate = _divided(both + place, inside, divisor, DIVIDE).to(tl.float32)
    up = _divided(both + place + N, inside, divisor, DIVIDE).to(tl.float32)
    g = tl.load(grad + row * N + n, mask=inside, other=0.0).to(tl.float32)
    act, slope = gate_slopes(gate, GELU)
    kind = out.dtype.element_ty
    tl.store(d_both + place, (g * up * slope).to(kind), mask=inside)
    tl.store(d_both + place + N, (g * act).to(kind), mask=inside)
    tl.store(out + row * N + n, (act * up).to(kind), mask=inside)


def gate(both: Tensor, divisors: Tensor | None = None, activation: Activation = "silu") -> Tensor:
    """[M, N]: act(gate) * up, from gate and up side by side [M, 2 N], still to be divided by numbers [M], if given."""
    m, n = len(both), both.shape[1] // 2
    out = torch.empty(m, n, dtype=both.dtype, device=both.device)
    block, warps = GATE
    how = {"DIVIDE": divisors is not None, "GELU": activation == "gelu_tanh", "BLOCK": block, "num_warps": warps}
    _gate_kernel[(m, triton.cdiv(n, block))](both, divisors, out, n, both.stride(0), **how, **APART)
    return out


def gate_rows(both: Tensor, squares: Tensor, parts: dict[str, int], width: int, eps: float, out: Tensor) -> Tensor:
    """As `gate` with silu, for a decoding step (kernels/triton/matmul.py): divided by what `squares`, the sums of so
    many parts, say."""
    m, n = len(both), both.shape[1] // 2
    block, warps = GATE
    _gate_rows_kernel[(m, triton.cdiv(n, block))](
        both, squares, out, n, both.stride(0), eps, K=width, **parts, BLOCK=block, num_warps=warps, **APART
    )
    return out


def gate_backward(
    both: Tensor, divisors: Tensor | None, grad: Tensor, activation: Activation = "silu"
) -> tuple[Tensor, Tensor]:
    """Of `gate`: d of gate and up once they are divided, and its output again."""
    m, n = grad.shape
    d_both, out = torch.empty_like(both), torch.empty_like(grad)
    block, warps = GATE_BACK
    how = {"DIVIDE": divisors is not None, "GELU": activation == "gelu_tanh", "BLOCK": block, "num_warps": warps}
    _gate_backward_kernel[(m, triton.cdiv(n, block))](both, divisors, grad, d_both, out, n, **how)
    return d_both, out
