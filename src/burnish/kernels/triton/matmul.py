"""The matmuls of a decoder layer like Llama's (Triton), each with what belongs to it: five kernels a layer.

    x        [M, H]  the residual stream
    z        [M, H]  x weighted by the next norm, not yet divided by the root mean square of its row
    squares  [M, P]  the sums of squares of a row of x, block by block

A norm's division is a number for each row, so it may come after the product: (x w / rms) W = (x w) W / rms. The kernel
that makes x also makes z and squares, the next one divides: no kernel does nothing but normalise.

Rows and weights come by the device's own copying engine where it has one: kernels get descriptors of them.

Sampler and trainer get the same bits: a product goes through its terms in one order whatever its blocks are, and so
does the library's that the trainer calls (kernels/triton/cublas.py); it is rounded before it is divided, because the
library rounds it; and a sum of squares is a tree over all columns, pair by pair.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from burnish.forward.packing import KEYS
from burnish.kernels.triton.cublas import product
from burnish.kernels.triton.gate import gate_of, gate_rows
from burnish.kernels.triton.logprob import LOG2E
from burnish.kernels.triton.norm import APART, add_norm, divisor_of, pairs
from burnish.kernels.triton.rotate import turned

if TYPE_CHECKING:
    from burnish.kernels.triton.kv_write import Newest, Turn
    from burnish.kernels.triton.weights import Layer

LINE = tl.constexpr(64)  # numbers of two bytes in a line of the cache
LINES = tl.constexpr(256)  # lines that a program asks for at once
SYSTEMS = 1024  # bytes of a multiprocessor's memory that the system takes for each program
PART = tl.constexpr(16)  # columns of x that share a sum of squares
WHOLE = 128  # rows: of so many, or half as many, a product's blocks are


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
def _after_fetching(weight, size, PDL: tl.constexpr):
    """As `after`; meanwhile a weight, which no kernel before writes, is brought nearer: each program has its share of
    it.
    """
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        step = tl.num_programs(0) * tl.num_programs(1) * LINES * LINE
        for first in range(program * LINES * LINE, size, step):
            nearer(weight + tl.minimum(first + tl.arange(0, LINES) * LINE, size - 1))
        tl.extra.cuda.gdc_wait()


@triton.jit
def _product(
    x, weight, row, part, column,
    K: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """[BM, PARTS * BN] in fp32: rows of x [M, K] from `row` on times rows of weight [.., N, K] from `column` on, in
    PARTS from `part` on.
    """
    total = tl.zeros([BM, PARTS * BN], tl.float32)
    for k in range(0, K, BK):
        columns = tl.reshape(weight.load([part, column, k]), [PARTS * BN, BK])
        total = tl.dot(x.load([row, k]), columns.T, total)
    return total


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
def _normed_kernel(
    z, squares, weight, fetched, bias, out, M, N, eps,
    K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr, BIAS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out = norm(x) weight^T + bias."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows, n = row + tl.arange(0, BM), column + tl.arange(0, BN)
    _after_fetching(fetched, N * K, PDL)
    parts = _parts(squares, rows, M, P, PP)
    total = _product(z, weight, row, 0, column, K, BM, BN, BK, 1)
    kind = out.dtype.element_ty
    total = total.to(kind).to(tl.float32) * divisor_of(parts, eps, K, BM, PP, LEVELS)
    if BIAS:
        total += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    place = out + rows.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(place, total.to(kind), mask=(rows < M)[:, None] & (n < N)[None, :])


@triton.jit
def _heads_kernel(
    z, squares, weight, fetched, bias, q_ptr, own_k, own_v, count_ptr, root_length_ptr, slot_ptr, cos_ptr, sin_ptr,
    M, N, eps, own_row, own_head,
    QUERIES: tl.constexpr, SHARED: tl.constexpr, HALF: tl.constexpr, BLOCK: tl.constexpr,
    K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr, BIAS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Heads of norm(x) weight^T + bias, for weight [2 heads, HALF, K]: rotated queries, then keys and values, which go
    into slots.

    A block holds BN numbers of a head and their partners, half a head away.
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
    _after_fetching(fetched, N * K, PDL)
    parts = _parts(squares, rows, M, P, PP)
    total = _product(z, weight, row, 2 * head, first, K, BM, BN, BK, 2)
    kind = q_ptr.dtype.element_ty
    total = _rounded(total, kind, PDL) * divisor_of(parts, eps, K, BM, PP, LEVELS)
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
def _gated_kernel(
    z, squares, weight, fetched, out, M, N, eps,
    K: tl.constexpr, P: tl.constexpr, PP: tl.constexpr, LEVELS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """out [M, N] = silu(gate) * up, where gate and up are norm(x) weight^T for weight [2, N, K]."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows, n = row + tl.arange(0, BM), column + tl.arange(0, BN)
    _after_fetching(fetched, 2 * N * K, PDL)
    parts = _parts(squares, rows, M, P, PP)
    total = _product(z, weight, row, 0, column, K, BM, BN, BK, 2)
    kind = out.dtype.element_ty
    total = _rounded(_rounded(total, kind, PDL) * divisor_of(parts, eps, K, BM, PP, LEVELS), kind, PDL)
    gate, up = tl.split(tl.permute(tl.reshape(total, [BM, 2, BN]), (0, 2, 1)))
    place = out + rows.to(tl.int64)[:, None] * N + n[None, :]
    tl.store(place, _gate_of(gate, up, PDL).to(kind), mask=(rows < M)[:, None] & (n < N)[None, :])


@triton.jit
def _added_kernel(
    y, weight, fetched, x, norm, z, squares, M, N, K: tl.constexpr, P: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """x += y weight^T, in place; and z, squares for the norm that follows."""
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    rows, n = row + tl.arange(0, BM), column + tl.arange(0, BN)
    _after_fetching(fetched, N * K, PDL)
    inside = (rows < M)[:, None] & (n < N)[None, :]
    place = rows.to(tl.int64)[:, None] * N + n[None, :]
    kind = x.dtype.element_ty
    old = tl.load(x + place, mask=inside, other=0.0)  # asked for before the product, used after it
    more = _product(y, weight, row, 0, column, K, BM, BN, BK, 1).to(kind).to(tl.float32)
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


class Stream:
    """What flows through the layers of a decoder while rows add a token each: x, and z, squares for the next norm.

    exact: the library adds up in order, too, however few its rows.
    """

    def __init__(self, tokens: Tensor, table: Tensor, norm: Tensor, eps: float, exact: bool = False) -> None:
        m, width = len(tokens), table.shape[1]
        self.x = torch.empty(m, width, dtype=table.dtype, device=table.device)
        self.z = self.room(width)
        parts = triton.cdiv(width, PART.value)
        self.squares = torch.empty(m, parts, dtype=torch.float32, device=table.device)
        self.norm, self.eps, self.exact, self.wide = norm, eps, exact, width > OWN_GATE
        padded = triton.next_power_of_2(parts)
        self.parts = {"P": parts, "PP": padded, "LEVELS": padded.bit_length() - 1}
        _begin_kernel[(m,)](
            tokens, table, norm, self.x, self.z, self.squares, width, parts,
            BK=triton.next_power_of_2(width), num_warps=2, **APART,
        )  # fmt: skip

    def room(self, width: int) -> Tensor:
        """Where rows are written for a product to read: whole blocks, since copies beyond an end are slow."""
        rows = triton.cdiv(len(self.x), WHOLE) * WHOLE
        return torch.empty(rows, width, dtype=self.x.dtype, device=self.x.device)

    def normed(self, weight: Tensor, bias: Tensor | None, adapter: object = None) -> Tensor:
        """[M, N]: norm(x) weight^T + bias. Layers with adapters take the WideStream."""
        (m, width), n = self.x.shape, len(weight)
        out = torch.empty(m, n, dtype=weight.dtype, device=weight.device)
        grid, (rows, columns), how = _how(self.z, m, weight, 1, self.wide)
        _normed_kernel[grid](
            rows, self.squares, columns, weight, weight if bias is None else bias, out, m, n, self.eps,
            K=width, BIAS=bias is not None, **self.parts, **how,
        )  # fmt: skip
        return out

    def heads(
        self, weight: Tensor, bias: Tensor | None, own_k: Tensor, own_v: Tensor, newest: Newest, turn: Turn
    ) -> Tensor:
        """Rotated queries [M, heads, 1, D] of norm(x); keys and values go into slots, as `kv_write.place` does it."""
        (m, width), n, (_, shared, _, d) = self.x.shape, len(weight), own_k.shape
        queries = n // d - 2 * shared
        out = torch.empty(m, queries, 1, d, dtype=weight.dtype, device=weight.device)
        grid, (rows, columns), how = _how(self.z, m, weight, 1, self.wide, d // 2)
        _heads_kernel[grid](
            rows, self.squares, columns, weight, weight if bias is None else bias, out,
            own_k, own_v, newest.count, newest.root_length, newest.slot, turn.cos, turn.sin,
            m, n, self.eps, own_k.stride(0), own_k.stride(1),
            QUERIES=queries, SHARED=shared, HALF=d // 2, BLOCK=KEYS, K=width, BIAS=bias is not None,
            **self.parts, **how,
        )  # fmt: skip
        return out

    def gated(self, weight: Tensor) -> Tensor:
        """[.., N]: silu(gate) * up of norm(x), for a weight [2 N, K]."""
        (m, width), n = self.x.shape, len(weight) // 2
        out = self.room(n)
        if self.wide:
            both = product(self.z[:m], weight, None, self.exact)
            return gate_rows(both, self.squares, self.parts, width, self.eps, out)
        grid, (rows, columns), how = _how(self.z, m, weight, 2, self.wide)
        _gated_kernel[grid](rows, self.squares, columns, weight, out, m, n, self.eps, K=width, **self.parts, **how)
        return out

    def through_mlp(self, layer: Layer, norm: Tensor) -> None:
        """x += mlp(norm(x)); the norm is the one that follows."""
        self.add(self.gated(layer.gate_and_up), layer.down, norm)

    def add(self, y: Tensor, weight: Tensor, norm: Tensor, post: object = None, adapter: object = None) -> None:
        """x += y weight^T for y in a `room`; the norm is the one that follows; y itself has none, and no adapter."""
        (m, n), width = self.x.shape, y.shape[1]
        grid, (rows, columns), how = _how(y, m, weight, 1, self.wide)
        _added_kernel[grid](
            rows, columns, weight, self.x, norm, self.z, self.squares, m, n, K=width, P=self.parts["P"], **how
        )
        self.norm = norm

    def end(self) -> Tensor:
        """[M, H]: norm(x)."""
        return add_norm(self.x, None, self.norm, self.eps)


# Rows and columns of a product's blocks, how far it goes at once, warps; for one product, and for gate and up in one.
_BLOCKS = {
    1: ((64, 16, 128, 4), (64, 32, 128, 4), (64, 64, 128, 4), (128, 64, 128, 8)),
    2: ((64, 16, 128, 4), (64, 32, 128, 4), (64, 64, 64, 4), (128, 64, 64, 8)),
}
_MANY = (64, 64, 64, 4)  # where not even the largest is large enough: three to a multiprocessor
_STAGES = 5, 6  # of the others, at least, where there is room; the second of wide decoders
OWN_GATE = 1024  # hidden size up to which a decoder is narrow: gate and up are our own product


def _how(
    x: Tensor, m: int, weight: Tensor, parts: int, wide: bool, half: int = 0
) -> tuple[tuple[int, int], list[TensorDescriptor], dict[str, Any]]:
    """How to launch a product of x [M, K], in a `room`, and a weight [parts * N, K]: how many programs, what they read,
    in what blocks.

    half: the size of half a head, where a block is to hold numbers of one head and their partners
    """
    k, n = x.shape[1], len(weight) // parts
    how = dict(_blocks(m, n, parts, x.element_size(), wide, x.device))
    at_once, of = parts, n
    if half:
        how["BN"] = min(how["BN"] // 2, half)
        at_once, of, n = 2, half, n // 2
    read = [
        TensorDescriptor(x, list(x.shape), [k, 1], [how["BM"], how["BK"]]),
        TensorDescriptor(weight, [len(weight) // of, of, k], [of * k, k, 1], [at_once, how["BN"], how["BK"]]),
    ]
    return (triton.cdiv(m, how["BM"]), triton.cdiv(n, how["BN"])), read, {**how, **chained(x), **APART}


@cache
def multiprocessors(device: torch.device) -> tuple[int, int]:
    """How many the device has, and how many bytes of its own memory each; without a device, those of an H200."""
    if device.type != "cuda":
        return 132, 228 << 10
    about: Any = torch.cuda.get_device_properties(device)
    return about.multi_processor_count, about.shared_memory_per_multiprocessor


@cache
def _blocks(rows: int, columns: int, parts: int, size: int, wide: bool, device: torch.device) -> dict[str, int]:
    """The smallest blocks of which the device can give each a multiprocessor of its own, for numbers of so many bytes.

    They take more than half of its memory: with less, layers took 1 to 3 us longer. It seems that two then come to one
    multiprocessor while others have none, since the kernel before is still there when they are placed.
    """
    processors, room = multiprocessors(device)
    room -= SYSTEMS
    fit = (b for b in _BLOCKS[parts] if triton.cdiv(rows, b[0]) * triton.cdiv(columns, b[1]) <= processors)
    found = next(fit, None)
    m, n, k, warps = found or _MANY
    stage = size * k * (m + n * parts)
    stages = min(max(_STAGES[wide], room // 2 // stage + 1), (room - 4096) // stage) if found else room // 3 // stage
    return {"BM": m, "BN": n, "BK": k, "num_warps": warps, "num_stages": max(1, stages)}


@cache
def _chained(device: torch.device) -> dict[str, Any]:
    able = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
    return {"PDL": True, "launch_pdl": True} if able else {"PDL": False}


def chained(x: Tensor) -> dict[str, Any]:
    """How to launch a kernel that begins with `after`: where the device can, before the one before it has ended."""
    return _chained(x.device)
