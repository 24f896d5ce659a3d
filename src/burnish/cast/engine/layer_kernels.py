"""The GPU kernels (Triton) of one decoder layer for rows that each add a token.

Small products cost a launch more than their arithmetic, so that norms, rotation, gating and residual sums are done by the
products that they come before or after. Each row is worked on by itself: sums run over the width in one order, so what
a row gets does not depend on its neighbours. Numbers are rounded where transformers rounds them.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait


@triton.jit
def begin(PDL: tl.constexpr):
    """With programmatic dependent launch: the next kernel may be launched, and what the last one wrote is waited for."""
    if PDL:
        gdc_launch_dependents()
        gdc_wait()


@triton.jit
def _scale(x, rows, inside, eps, K: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr):
    """[BM]: 1 / root mean square of each row of x [M, K]."""
    total = tl.zeros([BM], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        seen = inside[:, None] & (k < K)[None, :]
        part = tl.load(x + rows[:, None] * K + k[None, :], mask=seen, other=0.0).to(tl.float32)
        total += tl.sum(part * part, 1)
    return 1.0 / tl.sqrt(total / K + eps)


@triton.jit
def _normed(x, norm, scale, rows, inside, k, K: tl.constexpr):
    """[BM, BK]: columns k of the normalised rows."""
    known = k < K
    part = tl.load(x + rows[:, None] * K + k[None, :], mask=inside[:, None] & known[None, :], other=0.0)
    weight = tl.load(norm + k, mask=known, other=0.0)
    unit = (part.to(tl.float32) * scale[:, None]).to(part.dtype)
    return (unit.to(tl.float32) * weight.to(tl.float32)[None, :]).to(part.dtype)


@triton.jit
def _columns(weight, n, k, N, K: tl.constexpr):
    """[BK, BN]: columns n of the transposed weight [N, K]."""
    seen = (k < K)[:, None] & (n < N)[None, :]
    return tl.load(weight + n.to(tl.int64)[None, :] * K + k[:, None], mask=seen, other=0.0)


@triton.jit
def _heads_kernel(
    x, norm, weight, bias, out, cos, sin, count_ptr, root_length_ptr, q_norm, k_norm, M, N, eps, QUERIES, ROTATED,
    K: tl.constexpr, D: tl.constexpr, BIAS: tl.constexpr, HEAD_NORM: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """One head of one block of rows: norm, project, and rotate where it is a query or a key."""
    begin(PDL)
    head = tl.program_id(0)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    inside = rows < M
    half = tl.arange(0, D // 2)
    first, second = head * D + half, head * D + D // 2 + half
    scale = _scale(x, rows, inside, eps, K, BM, BK)
    a = tl.zeros([BM, D // 2], tl.float32)
    b = tl.zeros([BM, D // 2], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        h = _normed(x, norm, scale, rows, inside, k, K)
        a = tl.dot(h, _columns(weight, first, k, N, K), a)
        b = tl.dot(h, _columns(weight, second, k, N, K), b)
    if BIAS:
        a += tl.load(bias + first).to(tl.float32)[None, :]
        b += tl.load(bias + second).to(tl.float32)[None, :]
    kind = out.dtype.element_ty
    a, b = a.to(kind).to(tl.float32), b.to(kind).to(tl.float32)
    if head < ROTATED:
        if HEAD_NORM:
            each = q_norm if head < QUERIES else k_norm
            unit = 1.0 / tl.sqrt((tl.sum(a * a, 1) + tl.sum(b * b, 1)) / D + eps)
            a = (a * unit[:, None]).to(kind).to(tl.float32) * tl.load(each + half).to(tl.float32)[None, :]
            b = (b * unit[:, None]).to(kind).to(tl.float32) * tl.load(each + D // 2 + half).to(tl.float32)[None, :]
            a, b = a.to(kind).to(tl.float32), b.to(kind).to(tl.float32)
        count = tl.load(count_ptr + rows, mask=inside, other=1)
        position = count - 1 + tl.load(root_length_ptr + rows, mask=inside, other=0)
        turn = position[:, None] * (D // 2) + half[None, :]
        c = tl.load(cos + turn, mask=inside[:, None], other=0.0).to(tl.float32)
        s = tl.load(sin + turn, mask=inside[:, None], other=0.0).to(tl.float32)
        a, b = a * c - b * s, b * c + a * s
    place = out + rows.to(tl.int64)[:, None] * N
    tl.store(place + first[None, :], a.to(kind), mask=inside[:, None])
    tl.store(place + second[None, :], b.to(kind), mask=inside[:, None])


@triton.jit
def _gated_kernel(
    x, norm, weight, out, M, N, eps, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    """silu(gate) * up of one block of rows and columns; weight [2 N, K] holds gate and up."""
    begin(PDL)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    inside = rows < M
    scale = _scale(x, rows, inside, eps, K, BM, BK)
    gate = tl.zeros([BM, BN], tl.float32)
    up = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        h = _normed(x, norm, scale, rows, inside, k, K)
        gate = tl.dot(h, _columns(weight, n, k, N, K), gate)
        up = tl.dot(h, _columns(weight + N.to(tl.int64) * K, n, k, N, K), up)
    kind = out.dtype.element_ty
    gate, up = gate.to(kind).to(tl.float32), up.to(kind).to(tl.float32)
    value = gate / (1.0 + tl.exp(-gate)) * up
    place = out + rows.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(place, value.to(kind), mask=inside[:, None] & (n < N)[None, :])


@triton.jit
def _add_kernel(
    y, weight, x, M, N, K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr
):  # fmt: skip
    """x [M, N] += y [M, K] weight^T, one block."""
    begin(PDL)
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    rows = tl.program_id(1) * BM + tl.arange(0, BM)
    inside = rows < M
    acc = tl.zeros([BM, BN], tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        seen = inside[:, None] & (k < K)[None, :]
        h = tl.load(y + rows.to(tl.int64)[:, None] * K + k[None, :], mask=seen, other=0.0)
        acc = tl.dot(h, _columns(weight, n, k, N, K), acc)
    seen = inside[:, None] & (n < N)[None, :]
    place = x + rows.to(tl.int64)[:, None] * N + n[None, :]
    kind = x.dtype.element_ty
    total = tl.load(place, mask=seen, other=0.0).to(tl.float32) + acc.to(kind).to(tl.float32)
    tl.store(place, total.to(kind), mask=seen)


@triton.jit
def _norm_kernel(x, norm, out, M, eps, K: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr):
    begin(PDL)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    inside = rows < M
    scale = _scale(x, rows, inside, eps, K, BM, BK)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        seen = inside[:, None] & (k < K)[None, :]
        tl.store(out + rows[:, None] * K + k[None, :], _normed(x, norm, scale, rows, inside, k, K), mask=seen)


def launch_options(device: torch.device) -> dict[str, Any]:
    """Dependent launches from Hopper on: a kernel's launch then overlaps the end of the one before it."""
    early = device.type == "cuda" and torch.cuda.get_device_capability(device)[0] >= 9
    return {"PDL": True, "launch_pdl": True} if early else {"PDL": False}


def tiles(rows: int) -> dict[str, dict[str, int]]:
    """Block sizes for so many rows, as measured on an H200."""
    bm = 16 if rows <= 16 else 32 if rows <= 256 else 64
    wide = {"BM": bm, "BK": 64, "num_warps": 4, "num_stages": 4}
    return {"heads": wide, "gated": {**wide, "BN": 64}, "add": {**wide, "BN": 64}}


def heads(
    x: Tensor, norm: Tensor, eps: float, weight: Tensor, bias: Tensor | None, turn: tuple[Tensor, Tensor],
    count: Tensor, root_length: Tensor, of: tuple[int, int, int], head_norms: tuple[Tensor, Tensor] | None,
    options: dict[str, Any],
) -> Tensor:  # fmt: skip
    """[M, heads x D]: queries, keys and values of normalised rows x [M, K], queries and keys rotated.

    turn: cosines and sines [positions, D / 2];  of: how many heads are queries and keys, and their size
    """
    queries, keys, d = of
    m, n = len(x), len(weight)
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    tile = tiles(m)["heads"]
    q_norm, k_norm = head_norms or (norm, norm)
    _heads_kernel[(n // d, triton.cdiv(m, tile["BM"]))](
        x, norm, weight, norm if bias is None else bias, out, *turn, count, root_length, q_norm, k_norm, m, n, eps,
        queries, queries + keys, K=x.shape[1], D=d, BIAS=bias is not None, HEAD_NORM=head_norms is not None,
        **tile, **options,
    )  # fmt: skip
    return out


def gated(x: Tensor, norm: Tensor, eps: float, weight: Tensor, options: dict[str, Any]) -> Tensor:
    """[M, N]: silu(gate) * up of normalised rows; weight [2 N, K] holds gate and up."""
    m, n = len(x), len(weight) // 2
    out = torch.empty(m, n, dtype=x.dtype, device=x.device)
    tile = tiles(m)["gated"]
    grid = triton.cdiv(n, tile["BN"]), triton.cdiv(m, tile["BM"])
    _gated_kernel[grid](x, norm, weight, out, m, n, eps, K=x.shape[1], **tile, **options)
    return out


def add(y: Tensor, weight: Tensor, x: Tensor, options: dict[str, Any]) -> None:
    """x [M, N] += y [M, K] weight^T."""
    m, n = x.shape
    tile = tiles(m)["add"]
    grid = triton.cdiv(n, tile["BN"]), triton.cdiv(m, tile["BM"])
    _add_kernel[grid](y, weight, x, m, n, K=weight.shape[1], **tile, **options)


def normed(x: Tensor, norm: Tensor, eps: float, options: dict[str, Any]) -> Tensor:
    """[M, K]: rows normalised and weighted."""
    out = torch.empty_like(x)
    _norm_kernel[(triton.cdiv(len(x), 4),)](
        x, norm, out, len(x), eps, K=x.shape[1], BM=4, BK=min(1024, triton.next_power_of_2(x.shape[1])), **options
    )
    return out
