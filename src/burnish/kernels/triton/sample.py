"""The engine's GPU kernels for the choice of a token (Triton): each row's from its own logits, in an order that depends
on nothing else.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.kernels.triton.logprob import LOG2E, SUMMING, block_sum, cut, logp_of, together


@triton.jit
def _sums_kernel(logits, factor_ptr, tops, sums, V, blocks, BLOCK: tl.constexpr):
    """The largest logit of each block of the vocabulary, and the sum of e^(logit - largest)."""
    # from the last to the first: what was written last is still in the cache
    row, block = (tl.num_programs(0) - 1 - tl.program_id(0)).to(tl.int64), tl.num_programs(1) - 1 - tl.program_id(1)
    v = block * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits + row * V + v, mask=v < V, other=float("-inf")) * tl.load(factor_ptr + row)
    top, total, _ = block_sum(z)
    tl.store(tops + row * blocks + block, top)
    tl.store(sums + row * blocks + block, total)


@triton.jit
def _uniform(key, position):
    """In [0, 1): the first 24 bits of splitmix64(key + position * golden ratio), as burnish.core.randomness has it."""
    x = (key + position * -7046029254386353131).to(tl.uint64)
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB
    x = x ^ (x >> 31)
    return (x >> 40).to(tl.float32) * (1.0 / 16777216.0)


@triton.jit
def _choose_kernel(
    logits, tops, sums, token_ptr, logp_ptr, V, blocks, columns,
    factor_ptr, key_ptr, greedy_ptr, base_ptr, root_length_ptr, limit_ptr, slot_ptr, stops_ptr,
    last_ptr, count_ptr, done_ptr, ended_ptr,
    STOPS: tl.constexpr, BLOCK: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """The token at which the cumulative probability passes the row's noise (block first, then within
    it), noted down.
    """
    row = tl.program_id(0).to(tl.int64)
    count, done = tl.load(count_ptr + row), tl.load(done_ptr + row) != 0
    position = tl.load(base_ptr + row) + tl.load(root_length_ptr + row) + count
    factor, greedy = tl.load(factor_ptr + row), tl.load(greedy_ptr + row) != 0
    b = tl.arange(0, BLOCKS)
    top = tl.load(tops + row * blocks + b, mask=b < blocks, other=float("-inf"))
    highest, weight = together(top, tl.load(sums + row * blocks + b, mask=b < blocks, other=0.0))
    total = tl.sum(weight, 0)
    wanted = _uniform(tl.load(key_ptr + row), position) * total
    passed = tl.min(tl.where((tl.cumsum(weight, 0) > wanted) & (weight > 0), b, BLOCKS), 0)
    passed = tl.minimum(passed, tl.max(tl.where(weight > 0, b, 0), 0))
    likeliest = tl.minimum(tl.min(tl.where(top == highest, b, BLOCKS), 0), blocks - 1)
    block = tl.where(greedy, likeliest, passed)
    before = tl.sum(tl.where(b < block, weight, 0.0), 0)
    v = block * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits + row * V + v, mask=v < V, other=float("-inf")) * factor
    p = tl.exp2((z - highest) * LOG2E)
    inside = tl.min(tl.where((before + tl.cumsum(p, 0) > wanted) & (p > 0), v, V), 0)
    inside = tl.minimum(inside, tl.max(tl.where(p > 0, v, 0), 0))
    best = tl.min(tl.where(z == highest, v, V), 0)
    token = tl.minimum(tl.where(greedy, best, inside), V - 1)  # of NaN logits none is the largest: V
    chosen = tl.sum(tl.where(v == token, z, 0.0), 0)
    place = tl.load(slot_ptr + row) * columns + count
    tl.store(token_ptr + place, token.to(tl.int64))
    tl.store(logp_ptr + place, logp_of(chosen, highest, total))
    stopped = token < 0
    for i in range(STOPS):  # not unrolled: some models list many tokens that end a reply
        stopped = stopped | (tl.load(stops_ptr + i) == token)
    stopped = stopped & (done == 0)
    count = tl.where(done, count, count + 1)
    tl.store(last_ptr + row, token.to(tl.int64))
    tl.store(count_ptr + row, count)
    tl.store(ended_ptr + row, (tl.load(ended_ptr + row) != 0) | stopped)
    tl.store(done_ptr + row, done | stopped | (count >= tl.load(limit_ptr + row)))


def sample(rows: Any, at: slice, logits: Tensor) -> None:
    """One more token for the rows of a slice, from their logits [n, V]: what Rows.sample does, in two kernels."""
    n, vocabulary = logits.shape
    size, blocks = cut(vocabulary)
    tops, sums = (torch.empty(n, blocks, dtype=torch.float32, device=logits.device) for _ in range(2))
    _sums_kernel[(n, blocks)](logits, rows.factor[at], tops, sums, vocabulary, blocks, BLOCK=size, **SUMMING)
    _choose_kernel[(n,)](
        logits, tops, sums, rows.tokens, rows.logp, vocabulary, blocks, rows.tokens.stride(0),
        rows.factor[at], rows.key[at], rows.greedy[at], rows.base[at], rows.root_length[at], rows.limit[at],
        rows.slot[at], rows.stops,
        rows.last[at], rows.count[at], rows.done[at], rows.ended[at],
        STOPS=len(rows.stops), BLOCK=size, BLOCKS=triton.next_power_of_2(blocks), **SUMMING,
    )  # fmt: skip
