"""The engine's GPU kernels (Triton): attention of one new token per row, and sampling.

Each row is worked on by programs of its own, in an order that depends on nothing but the row: what a row gets does not
depend on its neighbours.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.cast.engine.placing import Newest, place
from burnish.cast.gpu import LOG2E, SUMMING, block_sum, cut, logp_of, together
from burnish.cast.packing import KEYS, SPAN
from burnish.cast.products import LINE, SYSTEMS, after, chained, multiprocessors, nearer
from burnish.cast.softmax import look, merge
from burnish.cast.tiled import FAR

# blocks on their way at once: with fewer the memory is idle; with eight the compiler no longer loads between products
STAGES = (3, 7)
FEW = 256  # rows up to which it pays to ask early for what is needed late


@triton.jit
def _block(start, whole, root_k, root_v, root_token, own_k, own_v, D: tl.constexpr, BLOCK: tl.constexpr):
    """Where the keys and values [BLOCK, D] from position start on lie: in the root, if they are before `whole`, or in the row's slot."""
    in_root = start < whole
    token = tl.where(in_root, root_token, D)
    place = tl.arange(0, BLOCK)[:, None] * token + tl.arange(0, D)[None, :]
    root, own = start * root_token, (start - whole) * D
    return tl.where(in_root, root_k + root, own_k + own) + place, tl.where(in_root, root_v + root, own_v + own) + place


@triton.jit
def _tail_nearer(own_k, own_v, whole, last, D: tl.constexpr, BLOCK: tl.constexpr):
    """Bring what the row's slot holds of its last block nearer: it is loaded last, when nothing else is left to wait for."""
    t = tl.maximum(tl.minimum(last // BLOCK * BLOCK + tl.arange(0, BLOCK), last - 1), whole) - whole
    lines = t[:, None] * D + tl.arange(0, (D + LINE - 1) // LINE)[None, :] * LINE
    nearer(own_k + lines)
    nearer(own_v + lines)


@triton.jit
def _mates(row, led, length, root, root_ptr, root_length_ptr, ROWS, mate, MATES: tl.constexpr):
    """Which rows look at a span together [..]: of those that follow `row`, if it leads, the ones that share its root; and which do."""
    rows = row + mate
    with_it = (mate < tl.where(led, MATES, 1)) & (rows < ROWS)
    rows = tl.where(with_it, rows, row)
    with_it = with_it & (tl.load(root_ptr + rows) == root) & (tl.load(root_length_ptr + rows) == length)
    return tl.where(with_it, rows, row), with_it


@triton.jit
def _state(row, count_ptr, root_ptr, root_length_ptr, slot_ptr):
    """How long a row's root is and where, its last position, and its slot."""
    length = tl.load(root_length_ptr + row).to(tl.int32)
    last = length + tl.load(count_ptr + row).to(tl.int32) - 1
    return length, last, tl.load(root_ptr + row), tl.load(slot_ptr + row)


@triton.jit
def _decode_kernel(
    q_ptr, out_ptr, own_k, own_v, pool_k, pool_v, count_ptr, root_ptr, root_length_ptr, slot_ptr,
    m_ptr, total_ptr, acc_ptr, scale, window, q_row, q_head, own_row, own_head, pool_token, ROWS,
    HEADS: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, NEARER: tl.constexpr,
    TURNS: tl.constexpr, SPAN: tl.constexpr, SPANS: tl.constexpr, MATES: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """Some rows and heads of keys, TURNS at most, one after the other; or one span of each."""
    pair, until = tl.program_id(0), ROWS * (HEADS // G)
    state = _state(pair % ROWS, count_ptr, root_ptr, root_length_ptr, slot_ptr)
    where = q_ptr, out_ptr, own_k, own_v, pool_k, pool_v, root_ptr, root_length_ptr, m_ptr, total_ptr, acc_ptr
    steps = q_row, q_head, own_row, own_head, pool_token, ROWS
    if PDL and NEARER:
        length, last, _, slot = state
        place = slot * own_row + pair // ROWS * own_head
        _tail_nearer(own_k + place, own_v + place, length // BLOCK * BLOCK, last, D, BLOCK)
    after(PDL)  # nothing before it depends on another kernel of the step
    if TURNS == 1:
        _pair(pair, state, where, steps, scale, window, HEADS, G, GP, D, BLOCK, SPAN, SPANS, MATES)
    else:
        for now in range(pair, until, tl.num_programs(0)):
            # the next row's is asked for before, to be there when its turn comes
            following = tl.minimum(now + tl.num_programs(0), until - 1) % ROWS
            then = _state(following, count_ptr, root_ptr, root_length_ptr, slot_ptr)
            _pair(now, state, where, steps, scale, window, HEADS, G, GP, D, BLOCK, SPAN, SPANS, MATES)
            state = then


@triton.jit
def _pair(
    pair, state, where, steps, scale, window,
    HEADS: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    SPAN: tl.constexpr, SPANS: tl.constexpr, MATES: tl.constexpr,
):  # fmt: skip
    """One row and head of keys, or a span of it, in the trainer's blocks (cast/tiled.py).

    A span that lies in a row's root is looked at by the first of MATES rows, for all of them that share the root: a tile has
    room for so many rows' queries, and what is found for a query does not depend on where in the tile it is.
    """
    q_ptr, out_ptr, own_k, own_v, pool_k, pool_v, root_ptr, root_length_ptr, m_ptr, total_ptr, acc_ptr = where
    q_row, q_head, own_row, own_head, pool_token, ROWS = steps
    length, last, root, slot = state
    row, head, here = (pair % ROWS).to(tl.int64), pair // ROWS, tl.program_id(1) * SPAN
    d, i = tl.arange(0, D), tl.arange(0, GP)
    mate, g = i // (GP // MATES), i % (GP // MATES)
    rows, real, end = row + mate * 0, g < G, last + 1
    begin = tl.maximum(end - window, 0) // BLOCK * BLOCK
    if SPANS > 1:
        begin, end, real = tl.maximum(begin, here), tl.minimum(end, here + SPAN), g < tl.where(here <= last, G, 0)
    if MATES > 1:
        leader = row // MATES * MATES
        led = (tl.load(root_ptr + leader) == root) & (tl.load(root_length_ptr + leader) == length)
        led = led & (here + SPAN <= length)
        rows, with_it = _mates(row, led, length, root, root_ptr, root_length_ptr, ROWS, mate, MATES)
        looks = (row == tl.where(led, leader, row)) & (here <= last)
        end, real = tl.where(looks, end, begin), (g < tl.where(looks, G, 0)) & with_it
    own, of_root, whole = slot * own_row + head * own_head, root * pool_token + head * D, length // BLOCK * BLOCK
    queries = rows * q_row + (head * G + g) * q_head
    q = tl.load(q_ptr + queries[:, None] + d[None, :], mask=real[:, None], other=0.0)
    m = tl.full([GP], float("-inf"), tl.float32)
    total = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for start in range(begin, end, BLOCK):
        t = start + tl.arange(0, BLOCK)
        there, shown = (t <= last)[:, None], ((t <= last) & (last - t < window))[None, :]
        keys, values = _block(
            start, whole, pool_k + of_root, pool_v + of_root, pool_token, own_k + own, own_v + own, D, BLOCK
        )
        keys, values = tl.load(keys, mask=there, other=0.0), tl.load(values, mask=there, other=0.0)
        m, total, acc = look(q, keys, values, shown, m, total, acc, scale, True)
    heads = rows * HEADS + head * G + g
    if SPANS > 1:
        heads = heads * SPANS + tl.program_id(1)
        tl.store(m_ptr + heads, m, mask=real)
        tl.store(total_ptr + heads, total, mask=real)
        tl.store(acc_ptr + heads[:, None] * D + d[None, :], acc, mask=real[:, None])
    else:
        _store(out_ptr, heads, total, acc, real[:, None], D)


@triton.jit
def _store(out_ptr, heads, total, acc, real, D: tl.constexpr):
    place = out_ptr + heads[:, None] * D + tl.arange(0, D)[None, :]
    tl.store(place, (acc / total[:, None]).to(out_ptr.dtype.element_ty), mask=real)


@triton.jit
def _join_kernel(
    m_ptr, total_ptr, acc_ptr, out_ptr, count_ptr, root_length_ptr, scale, window,
    HEADS: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, SPAN: tl.constexpr, SPANS: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """What the spans of one row and head of keys have found, put together from the first to the last, as the trainer does it."""
    row, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    d, g = tl.arange(0, D), tl.arange(0, GP)
    real = (g < G)[:, None]
    last = (tl.load(root_length_ptr + row) + tl.load(count_ptr + row)).to(tl.int32) - 1
    heads = row * HEADS + head * G + g
    m = tl.full([GP], float("-inf"), tl.float32)
    total = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    after(PDL)
    for span in range(tl.maximum(last + 1 - window, 0) // SPAN, last // SPAN + 1):
        at = heads * SPANS + span
        more_m = tl.load(m_ptr + at, mask=g < G, other=float("-inf"))
        more = tl.load(total_ptr + at, mask=g < G, other=0.0)
        more_acc = tl.load(acc_ptr + at[:, None] * D + d[None, :], mask=real, other=0.0)
        m, total, acc = merge(m, total, acc, more_m, more, more_acc, scale)
    _store(out_ptr, heads, total, acc, real, D)


@cache
def _walk(pairs: int, spans: int, block: int, queries: int, device: torch.device) -> tuple[int, dict[str, int]]:
    """How many pairs of a row and a head a program goes through, one after the other, and how it goes through their keys.

    block, queries: bytes of a block of keys and values, and of a tile of queries. One warp, whose sums go as those of a
    trainer's tile go: a row of it is one warp's, too. All programs have room at once, and as many pairs each, so that they end
    together; not where there are spans, which are not alike. They take all the room there is: of small ones many come to one
    multiprocessor and none to others.
    """
    processors, room = multiprocessors(device)
    fewest, most = STAGES
    fixed = queries + SYSTEMS
    at_once = max(1, room // (fixed + (fewest - 1) * block))
    turns = triton.cdiv(pairs, processors * at_once) if spans == 1 else 1
    each = triton.cdiv(pairs * spans, processors * turns)
    return turns, {"num_warps": 1, "num_stages": max(fewest, min(most, 1 + (room // each - fixed) // block))}


def attend_one(
    q: Tensor, own_k: Tensor, own_v: Tensor, pool_k: Tensor, pool_v: Tensor,
    count: Tensor, root: Tensor, root_length: Tensor, slot: Tensor, scale: float, window: int,
    spans: int = 1, together: bool = False, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """What the operator `decode` does, once the new keys and values are where they belong (cast/engine/placing.py).

    spans: how many of SPAN keys are looked at side by side; no row has more. 1: a row is looked at from its first key to its last.
    together: rows that follow each other and share a root look together at the spans that lie in it: it is read once for several.
    out: where it is written [rows or more, heads x D].
    """
    rows, heads, _, d = q.shape
    shared = own_k.shape[1]
    out = torch.empty(rows, heads * d, dtype=q.dtype, device=q.device) if out is None else out
    group = heads // shared
    begun = [q] * 3
    if spans > 1:
        begun = [torch.empty(rows * heads * spans * n, dtype=torch.float32, device=q.device) for n in (1, 1, d)]
    sizes: dict[str, int] = {"HEADS": heads, "G": group, "GP": max(16, triton.next_power_of_2(group)), "D": d}
    sizes |= {"SPAN": SPAN, "SPANS": spans}
    size = d * q.element_size()
    turns, walk = _walk(rows * shared, spans, 2 * KEYS * size, sizes["GP"] * size, q.device)
    mates = sizes["GP"] // triton.next_power_of_2(group) if together and spans > 1 and window >= FAR else 1
    _decode_kernel[(triton.cdiv(rows * shared, turns), spans)](
        q, out, own_k, own_v, pool_k, pool_v, count, root, root_length, slot, *begun,
        scale * LOG2E.value, window, q.stride(0), q.stride(1), own_k.stride(0), own_k.stride(1), pool_k.stride(0), rows,
        **sizes, BLOCK=KEYS, NEARER=rows <= FEW, TURNS=turns, MATES=mates, **walk, **chained(q),
    )  # fmt: skip
    if spans > 1:
        _join_kernel[(rows, shared)](
            *begun, out, count, root_length, scale * LOG2E.value, window, **sizes, num_warps=1, **chained(q)
        )
    return out.view(-1, 1, heads, d)


def _decode(
    q: Tensor, k: Tensor, v: Tensor, own_k: Tensor, own_v: Tensor, pool_k: Tensor, pool_v: Tensor,
    count: Tensor, root: Tensor, root_length: Tensor, slot: Tensor, scale: float, window: int,
) -> Tensor:  # fmt: skip
    place(q, k, v, own_k, own_v, Newest(count, root_length, slot))
    return attend_one(q, own_k, own_v, pool_k, pool_v, count, root, root_length, slot, scale, window)


decode = torch.library.custom_op(
    "burnish::decode",
    _decode,
    mutates_args=("own_k", "own_v"),
    schema="(Tensor q, Tensor k, Tensor v, Tensor(a!) own_k, Tensor(b!) own_v, Tensor pool_k, Tensor pool_v, "
    "Tensor count, Tensor root, Tensor root_length, Tensor slot, float scale, int window) -> Tensor",
)
"""[rows, 1, heads, D]: each row's new token (q, k, v [rows, heads, 1, D]) attends to its root, to its own tokens and to itself.

own_k, own_v  [slots, heads, capacity, D]: row i's own tokens are in slot[i], behind what its root has beyond whole blocks of KEYS
              (`placing.bring`); the new one is written at place root_length[i] % KEYS + count[i] - 1
pool_k, pool_v  [T, heads, D]: the roots, row i's from root[i], root_length[i] tokens long
window  how many tokens a token sees, itself included
"""


@decode.register_fake
def _(q: Tensor, *args: object) -> Tensor:
    rows, heads, _, d = q.shape
    return q.new_empty(rows, 1, heads, d)


@triton.jit
def _sums_kernel(logits, factor_ptr, tops, sums, V, blocks, BLOCK: tl.constexpr):
    """The largest logit of each block of the vocabulary, and the sum of e^(logit - largest)."""
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    v = block * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits + row * V + v, mask=v < V, other=float("-inf")) * tl.load(factor_ptr + row)
    top, total, _ = block_sum(z)
    tl.store(tops + row * blocks + block, top)
    tl.store(sums + row * blocks + block, total)


@triton.jit
def _uniform(key, position):
    """In [0, 1): the first 24 bits of splitmix64(key + position * golden ratio), as burnish.randomness has it."""
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
    """The token at which the cumulative probability passes the row's noise (block first, then within it), noted down."""
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
    likeliest = tl.min(tl.where(top == highest, b, BLOCKS), 0)
    block = tl.where(greedy, likeliest, passed)
    before = tl.sum(tl.where(b < block, weight, 0.0), 0)
    v = block * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(logits + row * V + v, mask=v < V, other=float("-inf")) * factor
    p = tl.exp2((z - highest) * LOG2E)
    inside = tl.min(tl.where((before + tl.cumsum(p, 0) > wanted) & (p > 0), v, V), 0)
    inside = tl.minimum(inside, tl.max(tl.where(p > 0, v, 0), 0))
    best = tl.min(tl.where(z == highest, v, V), 0)
    token = tl.where(greedy, best, inside)
    chosen = tl.sum(tl.where(v == token, z, 0.0), 0)
    place = tl.load(slot_ptr + row) * columns + count
    tl.store(token_ptr + place, token.to(tl.int64))
    tl.store(logp_ptr + place, logp_of(chosen, highest, total))
    stopped = False
    for i in tl.static_range(STOPS):
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
