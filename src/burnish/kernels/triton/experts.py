"""A mixture of experts on a GPU (Triton): routing, tokens grouped by expert, grouped matmuls, and their backward.

    p = softmax(h Wr^T);  w_j = the k largest of p, of experts e_1 .. e_k (divided by their sum, if normalised)
    y = sum over j of w_j (act(h Wg[e_j]^T) * h Wu[e_j]^T) Wd[e_j]^T

A token and one of its experts are an *entry*, number token * k + j. Entries are ordered by expert, and among those of
one expert by number, on the device: nothing waits for the host, so a CUDA graph may hold all of it. The sums of a
token do not depend on the tokens beside it: a matmul goes through its terms in one order, and y adds up its experts in
the order of j.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.kernels.architectures.spec import Experts, LayerSpec
from burnish.kernels.triton.cublas import product
from burnish.kernels.triton.gate import gate, gate_slopes
from burnish.kernels.triton.norm import APART

ENTRIES = 2048  # that a program looks at once to find those of its expert


@triton.jit
def _choose_kernel(logits, chosen, weights, EXPERTS, CHOSEN: tl.constexpr, EP: tl.constexpr, NORMALISED: tl.constexpr):
    """One token: its experts and their weights."""
    row, e = tl.program_id(0).to(tl.int64), tl.arange(0, EP)
    z = tl.load(logits + row * EXPERTS + e, mask=e < EXPERTS, other=float("-inf")).to(tl.float32)
    p = tl.exp(z - tl.max(z, 0))
    p = tl.where(e < EXPERTS, p / tl.sum(p, 0), -1.0)
    left, total = p, 0.0
    for j in tl.static_range(CHOSEN):
        best = tl.max(left, 0)
        expert = tl.minimum(tl.min(tl.where(left == best, e, EP), 0), EXPERTS - 1)  # of NaN none is the largest
        tl.store(chosen + row * CHOSEN + j, expert)
        total += best
        left = tl.where(e == expert, -1.0, left)
    left = p
    for j in tl.static_range(CHOSEN):
        best = tl.max(left, 0)
        expert = tl.minimum(tl.min(tl.where(left == best, e, EP), 0), EXPERTS - 1)
        share = best / total if NORMALISED else best
        tl.store(weights + row * CHOSEN + j, share.to(weights.dtype.element_ty))
        left = tl.where(e == expert, -1.0, left)


@triton.jit
def _group_kernel(chosen, offsets, order, where, N, BLOCK: tl.constexpr):
    """One expert: where its entries begin, which they are, and where each of them lies."""
    expert, i = tl.program_id(0), tl.arange(0, BLOCK)
    before = 0
    for start in range(0, N, BLOCK):
        e = tl.load(chosen + start + i, mask=start + i < N, other=1 << 30)
        before += tl.sum((e < expert).to(tl.int32), 0)
    tl.store(offsets + expert, before)
    if expert == tl.num_programs(0) - 1:
        tl.store(offsets + expert + 1, N)
    for start in range(0, N, BLOCK):
        e = tl.load(chosen + start + i, mask=start + i < N, other=1 << 30)
        mine = e == expert
        place = before + tl.cumsum(mine.to(tl.int32), 0) - 1
        tl.store(order + place, start + i, mask=mine)
        tl.store(where + start + i, place, mask=mine)
        before += tl.sum(mine.to(tl.int32), 0)


@triton.jit
def _rows_of(offsets, tile, EXPERTS, EP: tl.constexpr, BM: tl.constexpr):
    """The expert of a tile of BM entries, the tile's first entry, and where the expert's end; expert EXPERTS: there is
    none."""
    e = tl.arange(0, EP)
    first = tl.load(offsets + e, mask=e < EXPERTS, other=0)
    last = tl.load(offsets + e + 1, mask=e < EXPERTS, other=0)
    tiles = (last - first + BM - 1) // BM
    ends = tl.cumsum(tiles, 0)
    expert = tl.sum(((ends <= tile) & (e < EXPERTS)).to(tl.int32), 0)
    here = e == expert
    begin = tl.sum(tl.where(here, first + (tile - ends + tiles) * BM, 0), 0)
    return expert, begin, tl.sum(tl.where(here, last, 0), 0)


@triton.jit
def _matmul_kernel(
    x,
    weight,
    out,
    order,
    offsets,
    N,
    EXPERTS,
    CHOSEN,
    w_expert,
    w_n,
    w_k,
    K: tl.constexpr,
    EP: tl.constexpr,
    GATHER: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """A tile of entries of one expert: out [entries, N] = x weight[expert]^T; x is theirs, or (GATHER) that of their
    tokens."""
    expert, begin, end = _rows_of(offsets, tl.program_id(0), EXPERTS, EP, BM)
    if expert < EXPERTS:
        rows, n, k = begin + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN), tl.arange(0, BK)
        real, inside = (rows < end)[:, None], (n < N)[None, :]
        at = rows
        if GATHER:
            at = tl.load(order + rows, mask=rows < end, other=0) // CHOSEN
        read = x + at.to(tl.int64)[:, None] * K + k[None, :]
        its = weight + expert.to(tl.int64) * w_expert + k[:, None] * w_k + n[None, :] * w_n
        total = tl.zeros([BM, BN], tl.float32)
        for start in range(0, K, BK):
            left = k < K - start
            a = tl.load(read, mask=real & left[None, :], other=0.0)
            b = tl.load(its, mask=inside & left[:, None], other=0.0)
            total = tl.dot(a, b, total)
            read += BK
            its += BK * w_k
        place = out + rows.to(tl.int64)[:, None] * N + n[None, :]
        tl.store(place, total.to(out.dtype.element_ty), mask=real & inside)


@triton.jit
def _d_weight_kernel(
    a,
    b,
    out,
    order,
    offsets,
    N,
    K,
    CHOSEN,
    GATHER_A: tl.constexpr,
    GATHER_B: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """A block of out[expert] [N, K] = sum over the expert's entries of a^T b; of entries, or (GATHER) of their
    tokens."""
    expert = tl.program_id(2)
    n, k, m = tl.program_id(0) * BN + tl.arange(0, BN), tl.program_id(1) * BK + tl.arange(0, BK), tl.arange(0, BM)
    end = tl.load(offsets + expert + 1)
    total = tl.zeros([BN, BK], tl.float32)
    for start in range(tl.load(offsets + expert), end, BM):
        rows = start + m
        real = rows < end
        token = rows
        if GATHER_A or GATHER_B:
            token = tl.load(order + rows, mask=real, other=0) // CHOSEN
        of_a = (token if GATHER_A else rows).to(tl.int64)[None, :] * N + n[:, None]
        of_b = (token if GATHER_B else rows).to(tl.int64)[:, None] * K + k[None, :]
        left = tl.load(a + of_a, mask=real[None, :] & (n < N)[:, None], other=0.0)
        right = tl.load(b + of_b, mask=real[:, None] & (k < K)[None, :], other=0.0)
        total = tl.dot(left, right, total)
    place = out + expert.to(tl.int64) * N * K + n.to(tl.int64)[:, None] * K + k[None, :]
    tl.store(place, total.to(out.dtype.element_ty), mask=(n < N)[:, None] & (k < K)[None, :])


@triton.jit
def _gather_kernel(parts, where, weights, out, N, CHOSEN: tl.constexpr, WEIGHTED: tl.constexpr, BLOCK: tl.constexpr):
    """A block of one token: the sum of what its entries have, weighted or not, in the order of their numbers."""
    row, n = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for j in tl.static_range(CHOSEN):
        at = tl.load(where + row * CHOSEN + j).to(tl.int64) * N + n
        part = tl.load(parts + at, mask=n < N, other=0.0).to(tl.float32)
        if WEIGHTED:
            part = part * tl.load(weights + row * CHOSEN + j).to(tl.float32)
        total += part
    tl.store(out + row * N + n, total.to(out.dtype.element_ty), mask=n < N)


@triton.jit
def _gate_backward_kernel(
    both, grad, order, weights, d_both, gated, d_weights, N, GELU: tl.constexpr, BLOCK: tl.constexpr
):
    """One entry: from the gradient of its unweighted gate, d gate and d up, its weighted gate again, and d of its
    weight."""
    row, n = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    entry, inside = tl.load(order + row), n < N
    weight = tl.load(weights + entry).to(tl.float32)
    kind = gated.dtype.element_ty
    g = tl.load(both + row * 2 * N + n, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(both + row * 2 * N + N + n, mask=inside, other=0.0).to(tl.float32)
    d = tl.load(grad + row * N + n, mask=inside, other=0.0).to(tl.float32)
    act, slope = gate_slopes(g, GELU)
    tl.store(d_weights + entry, tl.sum(d * act * u, 0))
    d = d * weight
    tl.store(d_both + row * 2 * N + n, (d * u * slope).to(kind), mask=inside)
    tl.store(d_both + row * 2 * N + N + n, (d * act).to(kind), mask=inside)
    tl.store(gated + row * N + n, (act * u * weight).to(kind), mask=inside)


def route(logits: Tensor, experts: Experts) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Of router logits [M, E]: experts and weights of all entries, where experts begin, entries by expert, and where
    they lie."""
    m, count = logits.shape
    entries, device = m * experts.chosen, logits.device
    chosen, order, where = (torch.empty(entries, dtype=torch.int32, device=device) for _ in range(3))
    offsets = torch.empty(count + 1, dtype=torch.int32, device=device)
    weights = torch.empty(entries, dtype=logits.dtype, device=device)
    sizes = {"CHOSEN": experts.chosen, "EP": triton.next_power_of_2(count), "NORMALISED": experts.normalised}
    _choose_kernel[(m,)](logits, chosen, weights, count, **sizes, num_warps=1, **APART)
    block = min(ENTRIES, triton.next_power_of_2(entries))
    _group_kernel[(count,)](chosen, offsets, order, where, entries, BLOCK=block, num_warps=8 if block > 512 else 4)
    return chosen, weights, offsets, order, where


def _blocks(entries: int, count: int, columns: int) -> dict[str, int]:
    """Sizes of a grouped matmul's tiles: as many rows as an expert has entries on average, within bounds."""
    rows = max(16, min(128, triton.next_power_of_2(triton.cdiv(entries, count))))
    if rows >= 128:
        return {"BM": 128, "BN": 128, "BK": 64, "num_warps": 8, "num_stages": 3}
    return {"BM": rows, "BN": 64 if columns % 128 else 128, "BK": 64, "num_warps": 4, "num_stages": 4}


def grouped(
    x: Tensor, weight: Tensor, offsets: Tensor, order: Tensor, chosen: int, gather: bool, back: bool = False
) -> Tensor:
    """[entries, N] = x weight[e]^T of each entry's expert e, for weight [E, N, K]; back: x weight[e], for weight [E,
    K, N].

    x  [entries, K] in the order of experts, or, to gather, [tokens, K]
    """
    count, n, k = weight.shape if not back else (len(weight), weight.shape[2], weight.shape[1])
    entries = len(order)
    out = torch.empty(entries, n, dtype=x.dtype, device=x.device)
    how = _blocks(entries, count, n)
    tiles = min(entries, triton.cdiv(entries, how["BM"]) + count)
    steps = weight.stride(0), *((weight.stride(2), weight.stride(1)) if back else weight.stride()[1:])
    _matmul_kernel[(tiles, triton.cdiv(n, how["BN"]))](
        x,
        weight,
        out,
        order,
        offsets,
        n,
        count,
        chosen,
        *steps,
        K=k,
        EP=triton.next_power_of_2(count),
        GATHER=gather,
        **how,
    )
    return out


def _d_weight(
    a: Tensor, b: Tensor, like: Tensor, offsets: Tensor, order: Tensor, chosen: int, of: tuple[bool, bool]
) -> Tensor:
    """[E, N, K] like a weight: of each expert, a^T b over its entries; of: whether a and b are of tokens, not of
    entries."""
    count, n, k = like.shape
    out = torch.empty_like(like)
    how: dict[str, Any] = {"BM": 64, "BN": 128, "BK": 128, "num_warps": 8, "num_stages": 3}
    _d_weight_kernel[(triton.cdiv(n, 128), triton.cdiv(k, 128), count)](
        a, b, out, order, offsets, n, k, chosen, GATHER_A=of[0], GATHER_B=of[1], **how
    )
    return out


def _gathered(parts: Tensor, where: Tensor, weights: Tensor | None, chosen: int) -> Tensor:
    """[tokens, N]: sums of the entries of each token."""
    m, n = len(where) // chosen, parts.shape[1]
    out = torch.empty(m, n, dtype=parts.dtype, device=parts.device)
    block = min(1024, triton.next_power_of_2(n))
    how = {"CHOSEN": chosen, "WEIGHTED": weights is not None, "BLOCK": block, "num_warps": 4}
    _gather_kernel[(m, triton.cdiv(n, block))](
        parts, where, parts if weights is None else weights, out, n, **how, **APART
    )
    return out


def forward(
    h: Tensor, router: Tensor, gate_and_up: Tensor, down: Tensor, spec: LayerSpec, exact: bool
) -> tuple[Tensor, Tensor, list[Tensor]]:
    """y [M, H] from h [M, H]; gates and ups of all entries, and how they were routed, for the backward."""
    assert spec.experts is not None
    logits = product(h, router, None, exact)
    chosen, weights, offsets, order, where = route(logits, spec.experts)
    both = grouped(h, gate_and_up, offsets, order, spec.experts.chosen, gather=True)
    parts = grouped(gate(both, None, spec.activation), down, offsets, order, spec.experts.chosen, gather=False)
    y = _gathered(parts, where, weights, spec.experts.chosen)
    return y, both, [logits, chosen, weights, offsets, order, where]


def backward(
    grad: Tensor,
    h: Tensor,
    weights_of: tuple[Tensor, Tensor, Tensor],
    both: Tensor,
    routed: list[Tensor],
    spec: LayerSpec,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of h, of the router and of the experts' two weights, from that of y [M, H].

    An entry's part of y is w a, with a = gated Wd^T. So d w = grad . a = (grad Wd) . gated: a itself need not be kept.
    """
    assert spec.experts is not None
    router, gate_and_up, down = weights_of
    logits, chosen, weights, offsets, order, where = routed
    k, width = spec.experts.chosen, spec.experts.width
    unweighted = grouped(grad, down, offsets, order, k, gather=True, back=True)
    d_both, gated = torch.empty_like(both), torch.empty_like(unweighted)
    d_weights = torch.empty(len(order), dtype=torch.float32, device=grad.device)
    block = triton.next_power_of_2(width)
    _gate_backward_kernel[(len(order),)](
        both,
        unweighted,
        order,
        weights,
        d_both,
        gated,
        d_weights,
        width,
        GELU=spec.activation == "gelu_tanh",
        BLOCK=block,
        num_warps=4 if block <= 2048 else 8,
    )
    d_down = _d_weight(grad, gated, down, offsets, order, k, (True, False))
    d_gate_and_up = _d_weight(d_both, h, gate_and_up, offsets, order, k, (False, True))
    d_h = _gathered(grouped(d_both, gate_and_up, offsets, order, k, gather=False, back=True), where, None, k)
    d_logits = _d_logits(logits, chosen.view(-1, k).long(), d_weights.view(-1, k), spec.experts).to(h.dtype)
    return d_h + d_logits @ router, d_logits.t() @ h, d_gate_and_up, d_down


def _d_logits(logits: Tensor, chosen: Tensor, d_weights: Tensor, experts: Experts) -> Tensor:
    """[M, E] in fp32: the gradient of router logits, from that of the weights [M, k] of the chosen experts.

    p = softmax(z), w = p_chosen / s with s their sum (or 1):  d p_chosen = (d w - sum(d w w)) / s,  d z = p (d p -
    sum(d p p)).
    """
    p = torch.softmax(logits.float(), -1)
    d_p = d_weights
    if experts.normalised:
        top = p.gather(1, chosen)
        total = top.sum(-1, keepdim=True)
        d_p = (d_weights - (d_weights * top / total).sum(-1, keepdim=True)) / total
    spread = torch.zeros_like(p).scatter_(1, chosen, d_p)
    return p * (spread - (spread * p).sum(-1, keepdim=True))
