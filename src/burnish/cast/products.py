"""The matrix products of a decoder layer like Llama's (Triton), each with what belongs to it: five kernels a layer.

    x        [M, H]  the residual stream
    z        [M, H]  x weighted by the next norm, not yet divided by the root mean square of its row
    squares  [M, P]  the sums of squares of a row of x, block by block

A norm's division is a number for each row, so it may come after the product: (x w / rms) W = (x w) W / rms. The kernel
that makes x also makes z and squares, the next one divides: no kernel does nothing but normalise.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.cast.layer_kernels import add_norm

PART = 32  # columns of x that share a sum of squares


@triton.jit
def after(PDL: tl.constexpr):
    """Let the next kernel come onto the device, then wait for what the one before has written."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
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
def _divisor(squares, rows, M, eps, K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr):
    """[BM]: one over the root mean square of each row."""
    p = tl.arange(0, PP)
    some = tl.load(squares + rows[:, None] * P + p[None, :], mask=(rows < M)[:, None] & (p < P)[None, :], other=0.0)
    return 1.0 / tl.sqrt(tl.sum(some, 1) / K + eps)


@triton.jit
def _normed_kernel(
    z, squares, weight, bias, out, M, N, eps,
    K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, BIAS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out = norm(x) weight^T + bias."""
    n, rows = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1) * BM + tl.arange(0, BM)
    after(PDL)
    total = _product(z, weight, rows, n, M, N, K, BM, BN, BK)
    total *= _divisor(squares, rows, M, eps, K, P, PP)[:, None]
    if BIAS:
        total += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    place = out + rows.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(rows < M)[:, None] & (n < N)[None, :])


@triton.jit
def _gated_kernel(
    z, squares, weight, out, M, N, eps,
    K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out [M, N] = silu(gate) * up, where gate and up are norm(x) weight^T for weight [2 N, K]."""
    n, rows = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1) * BM + tl.arange(0, BM)
    after(PDL)
    below = weight + N.to(tl.int64) * K
    gate = tl.zeros([BM, BN], tl.float32)
    up = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = _rows(z, rows, k, M, K, BK)
        gate = tl.dot(a, _columns(weight, n, k, N, K, BK), gate)
        up = tl.dot(a, _columns(below, n, k, N, K, BK), up)
    divisor = _divisor(squares, rows, M, eps, K, P, PP)[:, None]
    kind = out.dtype.element_ty
    gate, up = (gate * divisor).to(kind).to(tl.float32), (up * divisor).to(kind).to(tl.float32)
    place = out + rows.to(tl.int64)[:, None] * N + n[None, :]
    value = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(place, value.to(kind), mask=(rows < M)[:, None] & (n < N)[None, :])


@triton.jit
def _added_kernel(
    y, weight, x, norm, z, squares, M, N, K: tl.constexpr, P: tl.constexpr, PART: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """x += y weight^T, in place; and z, squares for the norm that follows."""
    n, rows = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1) * BM + tl.arange(0, BM)
    after(PDL)
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
    sums = tl.sum(tl.reshape(total * total, [BM, BN // PART, PART]), 2)
    p = tl.program_id(0) * (BN // PART) + tl.arange(0, BN // PART)
    tl.store(squares + rows[:, None] * P + p[None, :], sums, mask=(rows < M)[:, None] & (p < P)[None, :])


@triton.jit
def _begin_kernel(
    tokens, table, norm, x, z, squares, H, P, PART: tl.constexpr, PP: tl.constexpr
):  # fmt: skip
    """One row: x is the embedding of its token; and z, squares for the first norm."""
    row = tl.program_id(0).to(tl.int64)
    n = tl.arange(0, PP * PART)
    kind = x.dtype.element_ty
    value = tl.load(table + tl.load(tokens + row) * H + n, mask=n < H, other=0.0)
    tl.store(x + row * H + n, value.to(kind), mask=n < H)
    value = value.to(tl.float32)
    tl.store(z + row * H + n, (value * tl.load(norm + n, mask=n < H, other=0.0).to(tl.float32)).to(kind), mask=n < H)
    p = tl.arange(0, PP)
    tl.store(squares + row * P + p, tl.sum(tl.reshape(value * value, [PP, PART]), 1), mask=p < P)


class Stream:
    """What flows through the layers of a narrow decoder: x, and z and squares for the norm that comes next."""

    def __init__(self, tokens: Tensor, table: Tensor, norm: Tensor, eps: float) -> None:
        m, width = len(tokens), table.shape[1]
        parts = triton.cdiv(width, PART)
        self.x, self.z = (torch.empty(m, width, dtype=table.dtype, device=table.device) for _ in range(2))
        self.squares = torch.empty(m, parts, dtype=torch.float32, device=table.device)
        self.norm, self.eps = norm, eps
        self.blocks = {"P": parts, "PP": triton.next_power_of_2(parts)}
        _begin_kernel[(m,)](
            tokens, table, norm, self.x, self.z, self.squares, width, PART=PART, **self.blocks, num_warps=4
        )

    def normed(self, weight: Tensor, bias: Tensor | None) -> Tensor:
        """[M, N]: norm(x) weight^T + bias."""
        (m, width), n = self.z.shape, len(weight)
        out = torch.empty(m, n, dtype=weight.dtype, device=weight.device)
        how = _how(m, "normed", weight)
        _normed_kernel[(triton.cdiv(n, how["BN"]), triton.cdiv(m, how["BM"]))](
            self.z, self.squares, weight, weight if bias is None else bias, out, m, n, self.eps,
            K=width, BIAS=bias is not None, **self.blocks, **how,
        )  # fmt: skip
        return out

    def gated(self, weight: Tensor) -> Tensor:
        """[M, N]: silu(gate) * up of norm(x), for a weight [2 N, K]."""
        (m, width), n = self.z.shape, len(weight) // 2
        out = torch.empty(m, n, dtype=weight.dtype, device=weight.device)
        how = _how(m, "gated", weight)
        _gated_kernel[(triton.cdiv(n, how["BN"]), triton.cdiv(m, how["BM"]))](
            self.z, self.squares, weight, out, m, n, self.eps, K=width, **self.blocks, **how
        )
        return out

    def add(self, y: Tensor, weight: Tensor, norm: Tensor) -> None:
        """x += y weight^T; the norm is the one that follows."""
        (m, n), width = self.x.shape, y.shape[1]
        how = _how(m, "down" if width > n else "added", weight)
        _added_kernel[(triton.cdiv(n, how["BN"]), triton.cdiv(m, how["BM"]))](
            y, weight, self.x, norm, self.z, self.squares, m, n,
            K=width, P=self.blocks["P"], PART=PART, **how,
        )  # fmt: skip
        self.norm = norm

    def end(self) -> Tensor:
        """[M, H]: norm(x)."""
        return add_norm(self.x, None, self.norm, self.eps)


# rows up to which, then for each product: rows and columns of a block, how far it goes at once, warps, stages (on an H200)
_BLOCKS: dict[float, dict[str, tuple[int, int, int, int, int]]] = {
    16: dict.fromkeys(("normed", "gated", "added"), (16, 32, 64, 4, 5)) | {"down": (16, 32, 128, 4, 5)},
    128: dict.fromkeys(("normed", "gated", "added", "down"), (64, 32, 128, 4, 5)),
    384: dict.fromkeys(("normed", "added", "down"), (64, 32, 128, 4, 5)) | {"gated": (64, 64, 64, 4, 5)},
    768: dict.fromkeys(("normed", "added", "down"), (64, 64, 128, 4, 5)) | {"gated": (64, 64, 64, 4, 3)},
    float("inf"): dict.fromkeys(("normed", "added"), (128, 64, 64, 8, 5))
    | {"gated": (64, 64, 64, 4, 3), "down": (64, 64, 128, 4, 3)},
}


def _how(rows: int, product: str, weight: Tensor) -> dict[str, Any]:
    """How to launch a product."""
    return {**_blocks(rows, product, weight.device), **chained(weight)}


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
