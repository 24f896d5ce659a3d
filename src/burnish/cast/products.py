"""The matrix products of a decoder layer like Llama's (Triton), each with what belongs to it: five kernels a layer.

    x        [M, H]  the residual stream
    z        [M, H]  x weighted by the next norm, not yet divided by the root mean square of its row
    squares  [M, P]  the sums of squares of a row of x, block by block

A norm's division is a number for each row, so it may come after the product: (x w / rms) W = (x w) W / rms. The kernel
that makes x also makes z and squares, the next one divides: no kernel does nothing but normalise.

Sampler and trainer get the same bits: a product goes through its terms in one order whatever its blocks are, and so does
the library's that the trainer calls (cast/library.py); it is rounded before it is divided, because the library rounds it;
and a sum of squares is a tree over all columns, pair by pair.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.cast.layer_kernels import APART, add_norm, gate_of

LINE = tl.constexpr(64)  # numbers of two bytes in a line of the cache
PART = tl.constexpr(16)  # columns of x that share a sum of squares
FETCH = 128  # rows up to which fetching weights early pays


@triton.jit
def after(PDL: tl.constexpr):
    """Let the next kernel come onto the device, then wait for what the one before has written."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit
def nearer(at):
    """Ask for the lines at these addresses, so that they are in the cache when they are loaded."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [at.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def _fetch(weight, n, N, K: tl.constexpr, LINES: tl.constexpr):
    """Bring some rows n of a weight [N, K] nearer."""
    line = tl.minimum(tl.arange(0, LINES) * LINE, K - 1)
    nearer(weight + tl.minimum(n, N - 1).to(tl.int64)[:, None] * K + line[None, :])


@triton.jit
def _after_fetching(weight, n, N, K: tl.constexpr, LINES: tl.constexpr, PDL: tl.constexpr):
    """As `after`; meanwhile rows of a weight, which no kernel before writes, are brought nearer."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        if LINES > 0:
            _fetch(weight, n, N, K, LINES)
        tl.extra.cuda.gdc_wait()


@triton.jit
def _rows(x, rows, k, M, K: tl.constexpr, BK: tl.constexpr):
    """[BM, BK]: some columns k of some rows of x [M, K]."""
    inside = (rows < M)[:, None]
    if K % BK != 0:
        inside = inside & (k < K)[None, :]
    return tl.load(x + rows.to(tl.int64)[:, None] * K + k[None, :], mask=inside, other=0.0)


@triton.jit
def _columns(weight, n, k, N, K: tl.constexpr, BK: tl.constexpr):
    """[BK, BN]: some columns k of some rows n of a weight [N, K], transposed."""
    inside = (n < N)[None, :]
    if K % BK != 0:
        inside = inside & (k < K)[:, None]
    return tl.load(weight + n.to(tl.int64)[None, :] * K + k[:, None], mask=inside, other=0.0)


@triton.jit
def _product(x, weight, rows, n, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """[BM, BN] in fp32: some rows of x [M, K] times some rows of weight [N, K]."""
    total = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        total = tl.dot(_rows(x, rows, k, M, K, BK), _columns(weight, n, k, N, K, BK), total)
    return total


@triton.jit
def pairs(x, ROWS: tl.constexpr, N: tl.constexpr, LEVELS: tl.constexpr):
    """[ROWS, N / 2^LEVELS]: sums of neighbours in x [ROWS, N], pair by pair: in one order, wherever its numbers are held."""
    for level in tl.static_range(LEVELS):
        x = tl.sum(tl.reshape(x, [ROWS, N >> (level + 1), 2]), 2)
    return x


@triton.jit
def _parts(squares, rows, M, P: tl.constexpr, PP: tl.constexpr):
    """[BM, PP]: the sums of squares of some rows, not yet added up."""
    p = tl.arange(0, PP)
    inside = (rows < M)[:, None] & (p < P)[None, :]
    return tl.load(squares + rows.to(tl.int64)[:, None] * P + p[None, :], mask=inside, other=0.0)


@triton.jit
def _divisor(parts, eps, K: tl.constexpr, BM: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr):
    """[BM, 1]: one over the root mean square of each row, from `_parts`."""
    return 1.0 / tl.sqrt(pairs(parts, BM, PP, LEVELS) / K + eps)


@triton.jit
def _normed_kernel(
    z, squares, weight, bias, out, M, N, eps,
    K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr, BIAS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, LINES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out = norm(x) weight^T + bias."""
    n, rows = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1) * BM + tl.arange(0, BM)
    _after_fetching(weight, n, N, K, LINES, PDL)
    parts = _parts(squares, rows, M, P, PP)
    total = _product(z, weight, rows, n, M, N, K, BM, BN, BK)
    kind = out.dtype.element_ty
    total = total.to(kind).to(tl.float32) * _divisor(parts, eps, K, BM, PP, LEVELS)
    if BIAS:
        total += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    place = out + rows.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(place, total.to(kind), mask=(rows < M)[:, None] & (n < N)[None, :])


@triton.jit
def _gated_kernel(
    z, squares, weight, out, M, N, eps,
    K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, LINES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out [M, N] = silu(gate) * up, where gate and up are norm(x) weight^T for weight [2 N, K]."""
    n, rows = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1) * BM + tl.arange(0, BM)
    _after_fetching(weight, n, N, K, LINES, PDL)
    parts = _parts(squares, rows, M, P, PP)
    # one product for both: rows of gate, then rows of up; where there are none, N - 1 is as good as any
    both = tl.minimum(tl.program_id(0) * BN + tl.arange(0, 2 * BN) % BN, N - 1)
    both += tl.arange(0, 2 * BN) // BN * N
    total = _product(z, weight, rows, both, M, 2 * N, K, BM, 2 * BN, BK)
    kind = out.dtype.element_ty
    total = (total.to(kind).to(tl.float32) * _divisor(parts, eps, K, BM, PP, LEVELS)).to(kind)
    gate, up = tl.split(tl.permute(tl.reshape(total, [BM, 2, BN]), (0, 2, 1)))
    value = gate_of(gate, up)
    place = out + rows.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(place, value.to(kind), mask=(rows < M)[:, None] & (n < N)[None, :])


@triton.jit
def _added_kernel(
    y, weight, x, norm, z, squares, M, N, K: tl.constexpr, P: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, LINES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """x += y weight^T, in place; and z, squares for the norm that follows."""
    n, rows = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1) * BM + tl.arange(0, BM)
    _after_fetching(weight, n, N, K, LINES, PDL)
    inside = (rows < M)[:, None] & (n < N)[None, :]
    place = rows.to(tl.int64)[:, None] * N + n[None, :]
    kind = x.dtype.element_ty
    more = _product(y, weight, rows, n, M, N, K, BM, BN, BK).to(kind).to(tl.float32)
    total = (tl.load(x + place, mask=inside, other=0.0).to(tl.float32) + more).to(kind)
    tl.store(x + place, total, mask=inside)
    total = total.to(tl.float32)
    tl.store(
        z + place, (total * tl.load(norm + n, mask=n < N, other=0.0).to(tl.float32)[None, :]).to(kind), mask=inside
    )
    p = tl.program_id(0) * (BN // PART) + tl.arange(0, BN // PART)
    place = squares + rows.to(tl.int64)[:, None] * P + p[None, :]
    tl.store(place, pairs(total * total, BM, BN, 4), mask=(rows < M)[:, None] & (p < P)[None, :])


@triton.jit
def _begin_kernel(tokens, table, norm, x, z, squares, K, P, BK: tl.constexpr):
    """One row: x is the embedding of its token; and z, squares for the first norm."""
    row = tl.program_id(0).to(tl.int64)
    k = tl.arange(0, BK)
    inside = k < K
    kind = z.dtype.element_ty
    value = tl.load(table + tl.load(tokens + row) * K + k, mask=inside, other=0.0).to(kind)
    tl.store(x + row * K + k, value, mask=inside)
    value = value.to(tl.float32)
    weighted = value * tl.load(norm + k, mask=inside, other=0.0).to(tl.float32)
    tl.store(z + row * K + k, weighted.to(kind), mask=inside)
    p = tl.arange(0, BK // PART)
    sums = tl.reshape(pairs(tl.reshape(value * value, [1, BK]), 1, BK, 4), [BK // PART])
    tl.store(squares + row * P + p, sums, mask=p < P)


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


class Stream:
    """What flows through the layers of a narrow decoder while rows add a token each: x, and z, squares for the next norm."""

    def __init__(self, tokens: Tensor, table: Tensor, norm: Tensor, eps: float) -> None:
        m, width = len(tokens), table.shape[1]
        self.x, self.z = (torch.empty(m, width, dtype=table.dtype, device=table.device) for _ in range(2))
        parts = triton.cdiv(width, PART.value)
        self.squares = torch.empty(m, parts, dtype=torch.float32, device=table.device)
        self.norm, self.eps = norm, eps
        padded = triton.next_power_of_2(parts)
        self.parts = {"P": parts, "PP": padded, "LEVELS": padded.bit_length() - 1}
        _begin_kernel[(m,)](
            tokens, table, norm, self.x, self.z, self.squares, width, parts,
            BK=triton.next_power_of_2(width), num_warps=2, **APART,
        )  # fmt: skip

    def normed(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """[M, N]: norm(x) weight^T + bias."""
        (m, width), n = self.z.shape, len(weight)
        out = torch.empty(m, n, dtype=weight.dtype, device=weight.device)
        how = _how(m, "normed", weight)
        _normed_kernel[(triton.cdiv(n, how["BN"]), triton.cdiv(m, how["BM"]))](
            self.z, self.squares, weight, weight if bias is None else bias, out, m, n, self.eps,
            K=width, BIAS=bias is not None, **self.parts, **how,
        )  # fmt: skip
        return out

    def gated(self, weight: Tensor) -> Tensor:
        """[M, N]: silu(gate) * up of norm(x), for a weight [2 N, K]."""
        (m, width), n = self.z.shape, len(weight) // 2
        out = torch.empty(m, n, dtype=weight.dtype, device=weight.device)
        how = _how(m, "gated", weight)
        _gated_kernel[(triton.cdiv(n, how["BN"]), triton.cdiv(m, how["BM"]))](
            self.z, self.squares, weight, out, m, n, self.eps, K=width, **self.parts, **how
        )
        return out

    def add(self, y: Tensor, weight: Tensor, norm: Tensor) -> None:
        """x += y weight^T; the norm is the one that follows."""
        (m, n), width = self.x.shape, y.shape[1]
        how = _how(m, "down" if width > n else "added", weight)
        _added_kernel[(triton.cdiv(n, how["BN"]), triton.cdiv(m, how["BM"]))](
            y, weight, self.x, norm, self.z, self.squares, m, n, K=width, P=self.parts["P"], **how
        )
        self.norm = norm

    def end(self) -> Tensor:
        """[M, H]: norm(x)."""
        return add_norm(self.x, None, self.norm, self.eps)


# rows up to which, then for each product: rows and columns of a block, how far it goes at once, warps, stages (on an H200)
_BLOCKS: dict[float, dict[str, tuple[int, int, int, int, int]]] = {
    16: dict.fromkeys(("normed", "gated", "added", "down"), (16, 16, 128, 2, 5)),
    128: dict.fromkeys(("normed", "gated"), (64, 32, 128, 4, 5))
    | dict.fromkeys(("added", "down"), (64, 16, 128, 4, 5)),
    384: dict.fromkeys(("normed", "added", "down"), (64, 32, 128, 4, 5)) | {"gated": (64, 64, 64, 4, 5)},
    768: dict.fromkeys(("normed", "added", "down"), (64, 64, 128, 4, 5)) | {"gated": (64, 64, 64, 4, 3)},
    float("inf"): dict.fromkeys(("normed", "added"), (128, 64, 64, 8, 5))
    | {"gated": (64, 64, 64, 4, 3), "down": (64, 64, 128, 4, 3)},
}


def _how(rows: int, product: str, weight: Tensor) -> dict[str, Any]:
    """How to launch a product."""
    lines = triton.next_power_of_2(triton.cdiv(weight.shape[1], 64)) if rows <= FETCH else 0
    return {**_blocks(rows, product, weight.device), "LINES": lines, **chained(weight), **APART}


@cache
def _blocks(rows: int, product: str, device: torch.device) -> dict[str, int]:
    """Blocks for so many rows, in as many stages as the device has room for."""
    m, n, k, warps, stages = next(how for most, how in _BLOCKS.items() if rows <= most)[product]
    room = 1 << 20
    if device.type == "cuda":
        room = torch.cuda.get_device_properties(device).shared_memory_per_block_optin  # type: ignore[attr-defined]
    bytes_a_stage = 2 * k * (m + n * (2 if product == "gated" else 1))
    stages = max(1, min(stages, (room - 4096) // bytes_a_stage))
    return {"BM": m, "BN": n, "BK": k, "num_warps": warps, "num_stages": stages}


@cache
def _chained(device: torch.device) -> dict[str, Any]:
    able = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
    return {"PDL": True, "launch_pdl": True} if able else {"PDL": False}


def chained(x: Tensor) -> dict[str, Any]:
    """How to launch a kernel that begins with `after`: where the device can, before the one before it has ended."""
    return _chained(x.device)
