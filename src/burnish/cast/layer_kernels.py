"""The GPU kernels (Triton) of a decoder layer like Llama's: what lies between its matrix products, forward and backward.

Numbers are rounded where they are stored and nowhere else; sums over tokens are taken in fp32, in a fixed order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from burnish.cast.library import product

# for kernels whose bits another kernel must find again: a product and the sum behind it never become one operation unseen
APART = {"enable_fp_fusion": False}
PROGRAMS = 1584  # that share the rows of a backward norm: twelve for each multiprocessor of an H200
# numbers that a program has, and its warps, as measured on an H200
GATE = 512, 2
GATE_BACK = 2048, 8


@triton.jit
def pairs(x, ROWS: tl.constexpr, N: tl.constexpr, LEVELS: tl.constexpr):
    """[ROWS, N / 2^LEVELS]: sums of neighbours in x [ROWS, N], pair by pair: in one order, wherever its numbers are held."""
    for level in tl.static_range(LEVELS):
        x = tl.sum(tl.reshape(x, [ROWS, N >> (level + 1), 2]), 2)
    return x


@triton.jit
def divisor_of(parts, eps, K: tl.constexpr, ROWS: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr):
    """[ROWS, 1]: one over the root mean square of each row, from sums of squares [ROWS, PP] of its parts."""
    return 1.0 / tl.sqrt(pairs(parts, ROWS, PP, LEVELS) / K + eps)


@triton.jit
def _add_norm_kernel(x, y, norm, out, total_ptr, eps, K: tl.constexpr, BK: tl.constexpr, ADD: tl.constexpr):
    """One row: total = x + y, and out = total / rms(total) * norm."""
    k = tl.arange(0, BK)
    inside = k < K
    place = tl.program_id(0).to(tl.int64) * K + k
    kind = x.dtype.element_ty
    total = tl.load(x + place, mask=inside, other=0.0).to(tl.float32)
    if ADD:
        total += tl.load(y + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(total_ptr + place, total.to(kind), mask=inside)
        total = total.to(kind).to(tl.float32)  # what the backward will see
    unit = total * (1.0 / tl.sqrt(tl.sum(total * total, 0) / K + eps))
    tl.store(out + place, (unit * tl.load(norm + k, mask=inside, other=0.0).to(tl.float32)).to(kind), mask=inside)


@triton.jit
def _norm_backward_kernel(
    x, norm, grad, more, d_x, out, d_norm, eps, M, PER, K: tl.constexpr, BK: tl.constexpr
):  # fmt: skip
    """Rows of one program: d x + more, the normalised rows again, and the sum of what is d norm.

    The next row is asked for before this one is worked on.
    """
    k = tl.arange(0, BK)
    inside = k < K
    weight = tl.load(norm + k, mask=inside, other=0.0).to(tl.float32)
    kind = x.dtype.element_ty
    total = tl.zeros([BK], tl.float32)
    row = tl.program_id(0) * PER
    end = tl.minimum(row + PER, M)
    place, stop = row.to(tl.int64) * K + k, end.to(tl.int64) * K
    seen = inside & (place < stop)
    next_x, next_grad = tl.load(x + place, mask=seen, other=0.0), tl.load(grad + place, mask=seen, other=0.0)
    next_more = tl.load(more + place, mask=seen, other=0.0)
    for _ in range(row, end):
        value, g, plus = next_x.to(tl.float32), next_grad.to(tl.float32), next_more.to(tl.float32)
        then = place + K
        seen = inside & (then < stop)
        next_x, next_grad = tl.load(x + then, mask=seen, other=0.0), tl.load(grad + then, mask=seen, other=0.0)
        next_more = tl.load(more + then, mask=seen, other=0.0)
        scale = 1.0 / tl.sqrt(tl.sum(value * value, 0) / K + eps)
        unit = value * scale
        total += g * unit
        slope = g * weight
        d = (slope - unit * (tl.sum(slope * unit, 0) / K)) * scale + plus
        tl.store(d_x + place, d.to(kind), mask=inside)
        tl.store(out + place, (unit * weight).to(kind), mask=inside)
        place = then
    tl.store(d_norm + tl.program_id(0) * K + k, total, mask=inside)


@triton.jit
def gate_of(gate, up):
    """silu(gate) * up in fp32."""
    gate = gate.to(tl.float32)
    return gate / (1.0 + tl.exp(-gate)) * up.to(tl.float32)


@triton.jit
def _divided(ptr, inside, divisor, DIVIDE: tl.constexpr):
    """Numbers of one row that are still to be divided, or are already."""
    x = tl.load(ptr, mask=inside, other=0.0)
    if DIVIDE:
        x = (x.to(tl.float32) * divisor).to(x.dtype)
    return x


@triton.jit
def _gate_row(both, out, row, divisor, N, DIVIDE: tl.constexpr, BLOCK: tl.constexpr):
    """A block of one row: out [M, N] = silu(gate) * up, from [M, 2 N]."""
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = n < N
    gate = _divided(both + row * 2 * N + n, inside, divisor, DIVIDE)
    up = _divided(both + row * 2 * N + N + n, inside, divisor, DIVIDE)
    tl.store(out + row * N + n, gate_of(gate, up).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _gate_kernel(both, divisors, out, N, DIVIDE: tl.constexpr, BLOCK: tl.constexpr):
    """The gate of rows, which are divided by numbers that lie ready, or not at all."""
    row = tl.program_id(0).to(tl.int64)
    divisor = tl.load(divisors + row) if DIVIDE else 1.0
    _gate_row(both, out, row, divisor, N, DIVIDE, BLOCK)


@triton.jit
def _gate_rows_kernel(
    both, squares, out, N, eps,
    K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gate of rows, which are divided by the root mean squares of x [M, K]: `squares` are sums of parts of its rows."""
    row, p = tl.program_id(0).to(tl.int64), tl.arange(0, PP)[None, :]
    parts = tl.load(squares + row * P + p, mask=p < P, other=0.0)
    divisor = tl.reshape(divisor_of(parts, eps, K, 1, PP, LEVELS), [1])
    _gate_row(both, out, row, divisor, N, True, BLOCK)


@triton.jit
def _gate_backward_kernel(both, divisors, grad, d_both, out, N, DIVIDE: tl.constexpr, BLOCK: tl.constexpr):
    """d gate and d up side by side, and silu(gate) * up again."""
    row = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = n < N
    place = row * 2 * N + n
    divisor = tl.load(divisors + row) if DIVIDE else 1.0
    gate = _divided(both + place, inside, divisor, DIVIDE).to(tl.float32)
    up = _divided(both + place + N, inside, divisor, DIVIDE).to(tl.float32)
    g = tl.load(grad + row * N + n, mask=inside, other=0.0).to(tl.float32)
    share = 1.0 / (1.0 + tl.exp(-gate))
    silu = gate * share
    kind = out.dtype.element_ty
    tl.store(d_both + place, (g * up * share * (1.0 + gate - silu)).to(kind), mask=inside)
    tl.store(d_both + place + N, (g * silu).to(kind), mask=inside)
    tl.store(out + row * N + n, (silu * up).to(kind), mask=inside)


@triton.jit
def turned(a, b, c, s):
    """The two halves of heads, rotated; said in full, so that sampler and trainer get the same bits."""
    return tl.fma(a, c, -b * s), tl.fma(b, c, a * s)


@triton.jit
def _rotate_kernel(
    x, positions, cos, sin, divisors, bias, W, TURNED, HEADS,
    D: tl.constexpr, HP: tl.constexpr, BACK: tl.constexpr, DIVIDE: tl.constexpr, BIAS: tl.constexpr,
):  # fmt: skip
    """The heads of one token in place: the first ones rotated, or rotated back; all divided before, and a bias added, if asked."""
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
    first, second = turned(a, b, c, s)
    tl.store(at, tl.where(head < TURNED, first, a).to(kind), mask=real)
    tl.store(at + D // 2, tl.where(head < TURNED, second, b).to(kind), mask=real)


def _warps(block: int) -> int:
    return 4 if block <= 2048 else 8


def add_norm(x: Tensor, y: Tensor | None, norm: Tensor, eps: float, total: Tensor | None = None) -> Tensor:
    """[M, K]: x + y (kept in `total`, which may be x), normalised and weighted."""
    m, width = x.shape
    out = torch.empty_like(x)
    block = triton.next_power_of_2(width)
    _add_norm_kernel[(m,)](
        x, x if y is None else y, norm, out, x if total is None else total, eps,
        K=width, BK=block, ADD=y is not None, num_warps=_warps(block), **APART,
    )  # fmt: skip
    return out


def norm_backward(x: Tensor, norm: Tensor, eps: float, grad: Tensor, more: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of a norm of x [M, K]: d x + more, d norm, and its output again."""
    m, width = x.shape
    block = triton.next_power_of_2(width)
    programs = min(m, PROGRAMS)
    d_x, out = torch.empty_like(x), torch.empty_like(x)
    d_norm = torch.empty(programs, width, dtype=torch.float32, device=x.device)
    _norm_backward_kernel[(programs,)](
        x, norm, grad, more, d_x, out, d_norm, eps, m, triton.cdiv(m, programs),
        K=width, BK=block, num_warps=1 if block <= 1024 else _warps(block),
    )  # fmt: skip
    return d_x, d_norm.sum(0).to(norm.dtype), out


def gate(both: Tensor, divisors: Tensor | None = None) -> Tensor:
    """[M, N]: silu(gate) * up, from gate and up side by side [M, 2 N], still to be divided by numbers [M], if given."""
    m, n = len(both), both.shape[1] // 2
    out = torch.empty(m, n, dtype=both.dtype, device=both.device)
    block, warps = GATE
    _gate_kernel[(m, triton.cdiv(n, block))](
        both, divisors, out, n, DIVIDE=divisors is not None, BLOCK=block, num_warps=warps, **APART
    )
    return out


def gate_rows(
    both: Tensor, squares: Tensor, parts: dict[str, int], width: int, eps: float, out: Tensor
) -> Tensor:  # fmt: skip
    """As `gate`, for a decoding step (cast/products.py): divided by what `squares`, the sums of so many parts, say."""
    m, n = len(both), both.shape[1] // 2
    block, warps = GATE
    _gate_rows_kernel[(m, triton.cdiv(n, block))](
        both, squares, out, n, eps, K=width, **parts, BLOCK=block, num_warps=warps, **APART
    )
    return out


def gate_backward(both: Tensor, divisors: Tensor | None, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Of `gate`: d of gate and up once they are divided, and its output again."""
    m, n = grad.shape
    d_both, out = torch.empty_like(both), torch.empty_like(grad)
    block, warps = GATE_BACK
    _gate_backward_kernel[(m, triton.cdiv(n, block))](
        both, divisors, grad, d_both, out, n, DIVIDE=divisors is not None, BLOCK=block, num_warps=warps
    )
    return d_both, out


def rotate(
    x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor, heads: int, d: int, back: bool = False,
    divisors: Tensor | None = None, bias: Tensor | None = None,
) -> None:  # fmt: skip
    """Rotate the first heads of each token of x [N, W] in place, by [positions, D / 2] cosines and sines; or back again.

    divisors, bias: all heads are first divided by numbers [N], and then a bias [W] is added.
    """
    n, width = x.shape
    moved = heads if divisors is None else width // d
    padded = triton.next_power_of_2(moved)
    _rotate_kernel[(n,)](
        x, positions, cos, sin, divisors, bias, width, heads, moved,
        D=d, HP=padded, BACK=back, DIVIDE=divisors is not None, BIAS=bias is not None,
        num_warps=max(1, min(8, padded * d // 512)), **APART,
    )  # fmt: skip


@triton.jit
def _add_kernel(
    x, y, norm, total_ptr, z, divisors, M, K: tl.constexpr, eps, BK: tl.constexpr, LEVELS: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
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


def add_weighted(x: Tensor, y: Tensor, norm: Tensor, eps: float, total: Tensor) -> tuple[Tensor, Tensor]:
    """z [M, K] of x + y (kept in `total`) and the norm that follows, and [M] one over the root mean squares of x + y."""
    z, (m, width) = torch.empty_like(x), x.shape
    divisors = torch.empty(m, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(width)
    _add_kernel[(triton.cdiv(m, 4),)](
        x, y, norm, total, z, divisors, m, width, eps,
        BK=block, LEVELS=block.bit_length() - 1, ROWS=4, num_warps=4, **APART,
    )  # fmt: skip
    return z, divisors


class WideStream:
    """What flows through the layers of a wide decoder while rows add a token each: x, and y that is still to be added to it.

    Its products are large enough to be the library's, and what lies between them is small beside them.
    """

    def __init__(self, tokens: Tensor, table: Tensor, norm: Tensor, eps: float, exact: bool) -> None:
        self.x = nn.functional.embedding(tokens, table)
        self.y: Tensor | None = None
        self.norm, self.eps, self.exact = norm, eps, exact

    def room(self, width: int) -> Tensor:
        """Where rows are written for a product to read."""
        return torch.empty(len(self.x), width, dtype=self.x.dtype, device=self.x.device)

    def normed(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """[M, N]: norm(x) weight^T + bias."""
        return product(self.end(), weight, bias, self.exact)

    def gated(self, weight: Tensor) -> Tensor:
        """[M, N]: silu(gate) * up of norm(x), for a weight [2 N, K]."""
        return gate(product(self.end(), weight, None, self.exact))

    def add(self, y: Tensor, weight: Tensor, norm: Tensor) -> None:
        """x += y weight^T; the norm is the one that follows."""
        self.y, self.norm = product(y, weight, None, self.exact), norm

    def end(self) -> Tensor:
        """[M, H]: norm(x)."""
        y, self.y = self.y, None
        return add_norm(self.x, y, self.norm, self.eps, self.x)
