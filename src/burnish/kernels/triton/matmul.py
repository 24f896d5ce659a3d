"""The matmuls of a decoder layer like Llama's (Triton), each with what belongs to it: five kernels a layer.

    x        [M, H]  the residual stream
    z        [M, H]  x weighted by the next norm, not yet divided by the root mean square of its row
    squares  [M, P]  the sums of squares of a row of x, block by block

A norm's division is a number for each row, so it may come after the product: (x w / rms) W = (x w) W / rms. The kernel
that makes x also makes z and squares, the next one divides: no kernel does nothing but normalise.

Rows and weights come by the device's own copying engine where it has one: kernels get descriptors of them.

LoRA adds s (z A^T) B^T to a product (kernels/triton/adapters.py). A program computes z A^T of its rows beside its own
product: A is small and stays in the L2 cache, so that an adapter costs no kernel of its own.

    a     [RANKS, K]  the matrices A of the projections of this product, below each other
    wide  [N, RANKS]  their matrices B with the scale, each in the columns of its own A, zeros elsewhere
    RP    ranks that a program reads, a power of two; LORA: whether there is an adapter

Sampler and trainer get the same bits: a product goes through its terms in one order whatever its blocks are, and so
does the library's that the trainer calls (kernels/triton/cublas.py); it is rounded before it is divided, because the
library rounds it; and a sum of squares is a tree over all columns, pair by pair.
"""

from __future__ import annotations

import triton
import triton.language as tl

from burnish.kernels.triton.adapted import with_adapter
from burnish.kernels.triton.gate import gate_of
from burnish.kernels.triton.launch import after_fetching
from burnish.kernels.triton.logprob import LOG2E
from burnish.kernels.triton.norm import divisor_of, pairs
from burnish.kernels.triton.rotate import turned

PART = tl.constexpr(16)  # columns of x that share a sum of squares


@triton.jit
def _product(
    x, weight, a, row, part, column, first,
    K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr,
    LORA: tl.constexpr, RP: tl.constexpr,
):  # fmt: skip
    """[BM, PARTS * BN] in fp32: rows of x [M, K] from `row` on times rows of weight [.., N, K] from `column` on, in
    PARTS from `part` on; and [BM, RP]: the same rows times rows of a from `first` on.
    """
    total, inner = tl.zeros([BM, PARTS * BN], tl.float32), tl.zeros([BM, RP], tl.float32)
    for k in range(0, K, BK):
        rows = x.load([row, k])
        columns = tl.reshape(weight.load([part, column, k]), [PARTS * BN, BK])
        total = tl.dot(rows, columns.T, total)
        if LORA:
            inner = tl.dot(rows, a.load([first, k]).T, inner)
    return total, inner


@triton.jit
def _parts(squares, rows, M, P: tl.constexpr, PP: tl.constexpr):
    """[BM, PP]: the sums of squares of some rows, not yet added up."""
    p = tl.arange(0, PP)
    inside = (rows < M)[:, None] & (p < P)[None, :]
    return tl.load(squares + rows.to(tl.int64)[:, None] * P + p[None, :], mask=inside, other=0.0)


@triton.jit
def _rounded(x, kind: tl.constexpr, PDL: tl.constexpr):
    """x in fp32, rounded to what `kind` holds; in pairs where the device can, which the compiler does not see by
    itself.
    """
    if PDL and kind == tl.bfloat16:
        bits = tl.inline_asm_elementwise(
            "{ .reg .b32 both; cvt.rn.bf16x2.f32 both, $3, $2; shl.b32 $0, both, 16; and.b32 $1, both, 0xffff0000; }",
            "=r,=r,f,f", [x], dtype=tl.int32, is_pure=True, pack=2,
        )  # fmt: skip
        x = bits.to(tl.float32, bitcast=True)
    else:
        x = x.to(kind).to(tl.float32)
    return x


@triton.jit
def _gate_of(gate, up, PDL: tl.constexpr):
    """As `gate_of`, bit for bit: an exponential too small for a normal number is zero here, and beside 1 it is nothing
    there.
    """
    if PDL:
        e = tl.inline_asm_elementwise(
            "ex2.approx.ftz.f32 $0, $1;", "=f,f", [gate * -LOG2E], dtype=tl.float32, is_pure=True, pack=1
        )
        value = gate / (1.0 + e) * up
    else:
        value = gate_of(gate, up, False)
    return value


@triton.jit
def normed_kernel(
    z, squares, weight, fetched, a, wide, bias, out, M, N, eps,
    K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr, BIAS: tl.constexpr,
    LORA: tl.constexpr, RANKS: tl.constexpr, RP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out = norm(x) weight^T + bias."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows, n = row + tl.arange(0, BM), column + tl.arange(0, BN)
    after_fetching(fetched, N * K, PDL)
    parts = _parts(squares, rows, M, P, PP)
    total, inner = _product(z, weight, a, row, 0, column, 0, K, BM, BN, BK, 1, LORA, RP)
    kind = out.dtype.element_ty
    total = total.to(kind).to(tl.float32)
    if LORA:
        total = with_adapter(total, inner, wide, n, N, 0, kind, RANKS, RP)
    total *= divisor_of(parts, eps, K, BM, PP, LEVELS)
    if BIAS:
        total += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    place = out + rows.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(place, total.to(kind), mask=(rows < M)[:, None] & (n < N)[None, :])


@triton.jit
def heads_kernel(
    z, squares, weight, fetched, a, wide, bias, q_ptr, own_k, own_v, count_ptr, root_length_ptr, slot_ptr,
    cos_ptr, sin_ptr, M, N, eps, own_row, own_head, k_first, v_first,
    QUERIES: tl.constexpr, SHARED: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr,
    K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr, BIAS: tl.constexpr,
    LORA: tl.constexpr, RANKS: tl.constexpr, RP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Heads of norm(x) weight^T + bias, for weight [2 heads, HALF, K]: rotated queries, then keys and values, which go
    into slots.

    A block holds BN numbers of a head and their partners, half a head away. Adapters of queries, keys and values: each
    reads its own A, the first of which is in row 0, k_first, v_first.
    """
    row, head, first = tl.program_id(0) * BM, tl.program_id(1) // (HALF // BN), tl.program_id(1) % (HALF // BN) * BN
    rows, n = row + tl.arange(0, BM), first + tl.arange(0, BN)
    there = rows < M
    own = tl.load(count_ptr + rows, mask=there, other=1).to(tl.int32) - 1
    length = tl.load(root_length_ptr + rows, mask=there, other=0).to(tl.int32)
    turn = (length + own)[:, None] * HALF + n[None, :]
    c, s = tl.load(cos_ptr + turn), tl.load(sin_ptr + turn)
    slot = tl.load(slot_ptr + rows, mask=there, other=0) * own_row + (length % BLOCK + own) * (2 * HALF)
    slot += (head - QUERIES) % SHARED * own_head
    place = tl.where(head < QUERIES, (rows.to(tl.int64) * QUERIES + head) * (2 * HALF), slot)
    to = tl.where(head < QUERIES, q_ptr, tl.where(head < QUERIES + SHARED, own_k, own_v))
    after_fetching(fetched, N * K, PDL)
    parts = _parts(squares, rows, M, P, PP)
    rank = tl.where(head < QUERIES, 0, tl.where(head < QUERIES + SHARED, k_first, v_first))
    total, inner = _product(z, weight, a, row, 2 * head, first, rank, K, BM, BN, BK, 2, LORA, RP)
    kind = q_ptr.dtype.element_ty
    total = _rounded(total, kind, PDL)
    if LORA:
        j = tl.arange(0, 2 * BN)
        j = head * (2 * HALF) + j // BN * HALF + first + j % BN
        total = with_adapter(total, inner, wide, j, N, rank, kind, RANKS, RP)
    total *= divisor_of(parts, eps, K, BM, PP, LEVELS)
    a, b = tl.split(tl.permute(tl.reshape(total, [BM, 2, BN]), (0, 2, 1)))
    if BIAS:
        a += tl.load(bias + head * (2 * HALF) + n).to(tl.float32)[None, :]
        b += tl.load(bias + head * (2 * HALF) + HALF + n).to(tl.float32)[None, :]
    a, b = _rounded(a, kind, PDL), _rounded(b, kind, PDL)
    c, s, turns = c.to(tl.float32), s.to(tl.float32), head < QUERIES + SHARED
    place = to + place[:, None] + n[None, :]
    first_half, second_half = turned(a, b, c, s)
    tl.store(place, tl.where(turns, first_half, a).to(kind), mask=there[:, None])
    tl.store(place + HALF, tl.where(turns, second_half, b).to(kind), mask=there[:, None])


@triton.jit
def gated_kernel(
    z, squares, weight, fetched, a, wide, out, M, N, eps,
    K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr,
    LORA: tl.constexpr, RANKS: tl.constexpr, RP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out [M, N] = silu(gate) * up, where gate and up are norm(x) weight^T for weight [2, N, K]."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows, n = row + tl.arange(0, BM), column + tl.arange(0, BN)
    after_fetching(fetched, 2 * N * K, PDL)
    parts = _parts(squares, rows, M, P, PP)
    total, inner = _product(z, weight, a, row, 0, column, 0, K, BM, BN, BK, 2, LORA, RP)
    kind = out.dtype.element_ty
    total = _rounded(total, kind, PDL)
    if LORA:
        j = tl.arange(0, 2 * BN)
        j = tl.where(column + j % BN < N, j // BN * N + column + j % BN, 2 * N)  # 2 N: beyond the end
        total = with_adapter(total, inner, wide, j, 2 * N, 0, kind, RANKS, RP)
    total = _rounded(total * divisor_of(parts, eps, K, BM, PP, LEVELS), kind, PDL)
    gate, up = tl.split(tl.permute(tl.reshape(total, [BM, 2, BN]), (0, 2, 1)))
    place = out + rows.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(place, _gate_of(gate, up, PDL).to(kind), mask=(rows < M)[:, None] & (n < N)[None, :])


@triton.jit
def added_kernel(
    y, weight, fetched, a, wide, x, norm, z, squares, M, N, K: tl.constexpr, P: tl.constexpr,
    LORA: tl.constexpr, RANKS: tl.constexpr, RP: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """x += y weight^T, in place; and z, squares for the norm that follows."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows, n = row + tl.arange(0, BM), column + tl.arange(0, BN)
    after_fetching(fetched, N * K, PDL)
    inside = (rows < M)[:, None] & (n < N)[None, :]
    place = rows.to(tl.int64)[:, None] * N + n[None, :]
    kind = x.dtype.element_ty
    old = tl.load(x + place, mask=inside, other=0.0)  # asked for before the product, used after it
    more, inner = _product(y, weight, a, row, 0, column, 0, K, BM, BN, BK, 1, LORA, RP)
    more = more.to(kind).to(tl.float32)
    if LORA:
        more = with_adapter(more, inner, wide, n, N, 0, kind, RANKS, RP)
    total = (old.to(tl.float32) + more).to(kind)
    tl.store(x + place, total, mask=inside)
    total = total.to(tl.float32)
    tl.store(
        z + place, (total * tl.load(norm + n, mask=n < N, other=0.0).to(tl.float32)[None, :]).to(kind), mask=inside
    )
    p = column // PART + tl.arange(0, BN // PART)
    place = squares + rows.to(tl.int64)[:, None] * P + p[None, :]
    tl.store(place, pairs(total * total, BM, BN, 4), mask=(rows < M)[:, None] & (p < P)[None, :])


@triton.jit
def begin_kernel(tokens, table, norm, x, z, squares, K, P, BK: tl.constexpr):
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
