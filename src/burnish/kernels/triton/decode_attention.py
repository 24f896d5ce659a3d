"""The engine's GPU kernels for attention of one new token per row (Triton).

Each row's sums go in an order that depends on nothing but the row, whether it has programs of its own or shares one
with rows of its group: what a row gets does not depend on its neighbours.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from burnish.forward.packing import KEYS, SPAN
from burnish.kernels.triton.kv_write import Newest, place
from burnish.kernels.triton.launch import LINE, SYSTEMS, after, chained, multiprocessors, nearer
from burnish.kernels.triton.logprob import LOG2E
from burnish.kernels.triton.packed_attention import FAR
from burnish.kernels.triton.softmax import look, merge

# blocks on their way at once: with fewer the memory is idle; with eight the compiler no longer loads between products
STAGES = (3, 7)
TOGETHER = (3, 5)  # the same where a program takes several rows
FEW = 256  # rows up to which it pays to ask early for what is needed late


@triton.jit
def _block(start, whole, root_k, root_v, root_token, own_k, own_v, D: tl.constexpr, BLOCK: tl.constexpr):
    """Where the keys and values [BLOCK, D] from position start on lie: in the root, if they are before `whole`, or in
    the row's slot.
    """
    in_root = start < whole
    token = tl.where(in_root, root_token, D)
    place = tl.arange(0, BLOCK)[:, None] * token + tl.arange(0, D)[None, :]
    root, own = start * root_token, (start - whole) * D
    return tl.where(in_root, root_k + root, own_k + own) + place, tl.where(in_root, root_v + root, own_v + own) + place


@triton.jit
def _tail_nearer(own_k, own_v, whole, last, D: tl.constexpr, BLOCK: tl.constexpr):
    """Bring what the row's slot holds of its last block nearer: it is loaded last, when nothing else is left to wait
    for.
    """
    t = tl.maximum(tl.minimum(last // BLOCK * BLOCK + tl.arange(0, BLOCK), last - 1), whole) - whole
    lines = t[:, None] * D + tl.arange(0, (D + LINE - 1) // LINE)[None, :] * LINE
    nearer(own_k + lines)
    nearer(own_v + lines)


@triton.jit
def _mates(row, led, length, root, root_ptr, root_length_ptr, ROWS, mate, MATES: tl.constexpr):
    """Which rows look at a span together [..]: of those that follow `row`, if it leads, the ones that share its root;
    and which do.
    """
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
    """One row and head of keys, or a span of it, in the trainer's blocks (kernels/triton/packed_attention.py).

    A span that lies in a row's root is looked at by the first of MATES rows, for all of them that share the root: a
    tile has room for so many rows' queries, and what is found for a query does not depend on where in the tile it is.
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
def _of(row, those, TAKES: tl.constexpr):
    """Which of TAKES numbers is the row's."""
    a, b, c, d = those
    if TAKES == 4:
        return tl.where(row < 2, tl.where(row == 0, a, b), tl.where(row == 2, c, d))
    return tl.where(row == 0, a, b)


@triton.jit
def _neighbours_kernel(
    q_ptr, out_ptr, own_k, own_v, pool_k, pool_v, count_ptr, root_ptr, root_length_ptr, slot_ptr,
    scale, window, q_row, q_head, own_row, own_head, pool_token, ROWS,
    HEADS: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, TAKES: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """TAKES rows that follow each other and a head of keys: together if all share a root, else one after the other."""
    parts, end = tl.cdiv(ROWS, TAKES), ROWS - 1
    first, head = tl.program_id(0) % parts * TAKES, tl.program_id(0) // parts
    l0, e0, r0, s0 = _state(first, count_ptr, root_ptr, root_length_ptr, slot_ptr)
    l1, e1, r1, s1 = _state(tl.minimum(first + 1, end), count_ptr, root_ptr, root_length_ptr, slot_ptr)
    l2, e2, r2, s2 = l0, e0, r0, s0
    l3, e3, r3, s3 = l1, e1, r1, s1
    if TAKES == 4:
        l2, e2, r2, s2 = _state(tl.minimum(first + 2, end), count_ptr, root_ptr, root_length_ptr, slot_ptr)
        l3, e3, r3, s3 = _state(tl.minimum(first + 3, end), count_ptr, root_ptr, root_length_ptr, slot_ptr)
    alike = (r0 == r1) & (l0 == l1) & (r0 == r2) & (l0 == l2) & (r0 == r3) & (l0 == l3)
    where = q_ptr, out_ptr, own_k, own_v, pool_k, pool_v, root_ptr, root_length_ptr, q_ptr, q_ptr, q_ptr
    steps = q_row, q_head, own_row, own_head, pool_token, ROWS
    after(PDL)
    if alike:
        whole = l0 // BLOCK
        at = head * own_head - whole * BLOCK * D  # where a slot would begin, did it hold the whole root, too
        owns = s0 * own_row + at, s1 * own_row + at, s2 * own_row + at, s3 * own_row + at
        lasts, root = (e0, e1, e2, e3), r0 * pool_token + head * D
        _together(first, head, whole, root, owns, lasts, where, steps, scale, HEADS, G, GP, D, BLOCK, TAKES)
    else:
        for row in range(first, tl.minimum(first + TAKES, ROWS)):
            state = _state(row, count_ptr, root_ptr, root_length_ptr, slot_ptr)
            _pair(head * ROWS + row, state, where, steps, scale, window, HEADS, G, GP, D, BLOCK, 1, 1, 1)


@triton.jit
def _together(
    first, head, whole, root, owns, lasts, where, steps, scale,
    HEADS: tl.constexpr, G: tl.constexpr, GP: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, TAKES: tl.constexpr,
):  # fmt: skip
    """The whole blocks of a root for all rows that share it, then each row's own, in one loop.

    A row's queries meet its keys in the order in which they would alone; keys of another weigh nothing, which changes
    no bit.
    """
    q_ptr, out_ptr, own_k, own_v, pool_k, pool_v, _, _, _, _, _ = where
    q_row, q_head, _, _, pool_token, ROWS = steps
    e0, e1, e2, e3 = lasts
    # the step of the loop with which each row's blocks end, and which would have been its first, had it gone alone
    c0 = e0 // BLOCK + 1
    c1 = c0 + tl.where(first + 1 < ROWS, e1 // BLOCK + 1 - whole, 0)
    c2 = c1 + tl.where(first + 2 < ROWS, e2 // BLOCK + 1 - whole, 0)
    c3 = c2 + tl.where(first + 3 < ROWS, e3 // BLOCK + 1 - whole, 0)
    begins = 0, c0 - whole, c1 - whole, c2 - whole
    d, i = tl.arange(0, D), tl.arange(0, GP)
    mate, g = i // (GP // TAKES), i % (GP // TAKES)
    rows = first.to(tl.int64) + mate
    real = (g < G) & (rows < ROWS)
    q = tl.load(q_ptr + (rows * q_row + (head * G + g) * q_head)[:, None] + d[None, :], mask=real[:, None], other=0.0)
    m = tl.full([GP], float("-inf"), tl.float32)
    total = tl.zeros([GP], tl.float32)
    acc = tl.zeros([GP, D], tl.float32)
    for step in range(c3 if TAKES == 4 else c1):
        row = (step >= c0).to(tl.int32) + (step >= c1).to(tl.int32)
        if TAKES == 4:
            row += (step >= c2).to(tl.int32)
        in_root, own = step < whole, _of(row, owns, TAKES)
        t = (step - _of(row, begins, TAKES)) * BLOCK + tl.arange(0, BLOCK)
        there = t <= _of(row, lasts, TAKES)
        place = t[:, None] * tl.where(in_root, pool_token, D) + d[None, :]
        keys = tl.load(tl.where(in_root, pool_k + root, own_k + own) + place, mask=there[:, None], other=0.0)
        values = tl.load(tl.where(in_root, pool_v + root, own_v + own) + place, mask=there[:, None], other=0.0)
        seen = there[None, :] & (in_root | (mate == row))[:, None]
        m, total, acc = look(q, keys, values, seen, m, total, acc, scale, True)
    _store(out_ptr, rows * HEADS + head * G + g, total, acc, real[:, None], D)


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
    """What the spans of one row and head of keys have found, put together from the first to the last, as the trainer
    does it.
    """
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
def _walk(
    pairs: int, spans: int, block: int, queries: int, device: torch.device, stages: tuple[int, int] = STAGES
) -> tuple[int, dict[str, int]]:
    """How many pairs of a row and a head a program goes through, one after the other, and how it goes through their
    keys.

    block, queries: bytes of a block of keys and values, and of a tile of queries. One warp, whose sums go as those of a
    trainer's tile go: a row of it is one warp's, too. All programs have room at once, and as many pairs each, so that
    they end together; not where there are spans, which are not alike. They take all the room there is: of small ones
    many come to one multiprocessor and none to others.
    """
    processors, room = multiprocessors(device)
    fewest, most = stages
    fixed = queries + SYSTEMS
    at_once = max(1, room // (fixed + (fewest - 1) * block))
    turns = triton.cdiv(pairs, processors * at_once) if spans == 1 else 1
    each = triton.cdiv(pairs * spans, processors * turns)
    return turns, {"num_warps": 1, "num_stages": max(fewest, min(most, 1 + (room // each - fixed) // block))}


def _takes(pairs: int, group: int, d: int, mates: int, device: torch.device) -> int:
    """How many rows a program takes together: as many as leave one program for each of a multiprocessor's four
    schedulers.

    They share a tile of 16 queries; wider heads need registers that are not there.
    """
    fit = min(mates, 16 // triton.next_power_of_2(group)) if d <= 64 else 1
    fewest = 4 * multiprocessors(device)[0]
    return next((takes for takes in (4, 2) if takes <= fit and pairs // takes >= fewest), 1)


def attend_one(
    q: Tensor, own_k: Tensor, own_v: Tensor, pool_k: Tensor, pool_v: Tensor,
    count: Tensor, root: Tensor, root_length: Tensor, slot: Tensor, scale: float, window: int,
    spans: int = 1, together: bool = False, mates: int = 1, out: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """What the operator `decode` does, once the new keys and values are where they belong (kernels/triton/kv_write.py).

    spans: how many of SPAN keys are looked at side by side; no row has more. 1: a row is looked at from its first key
    to its last. together: rows that follow each other and share a root look together at the spans that lie in it: it is
    read once for several. mates: how many rows that follow each other nearly always share a root (1, 2 or 4): it may be
    read once for so many. out: where it is written [rows or more, heads x D].
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
    where = q, out, own_k, own_v, pool_k, pool_v, count, root, root_length, slot
    steps = q.stride(0), q.stride(1), own_k.stride(0), own_k.stride(1), pool_k.stride(0), rows
    takes = _takes(rows * shared, group, d, mates, q.device) if spans == 1 and window >= FAR else 1
    if takes > 1:
        programs = triton.cdiv(rows, takes) * shared
        _, walk = _walk(programs, 1, 2 * KEYS * size, 16 * size, q.device, TOGETHER)
        _neighbours_kernel[(programs,)](
            *where, scale * LOG2E.value, window, *steps,
            HEADS=heads, G=group, GP=16, D=d, BLOCK=KEYS, TAKES=takes, **walk, **chained(q),
        )  # fmt: skip
        return out.view(-1, 1, heads, d)
    turns, walk = _walk(rows * shared, spans, 2 * KEYS * size, sizes["GP"] * size, q.device)
    at_once = sizes["GP"] // triton.next_power_of_2(group) if together and spans > 1 and window >= FAR else 1
    _decode_kernel[(triton.cdiv(rows * shared, turns), spans)](
        *where, *begun, scale * LOG2E.value, window, *steps,
        **sizes, BLOCK=KEYS, NEARER=rows <= FEW, TURNS=turns, MATES=at_once, **walk, **chained(q),
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
"""[rows, 1, heads, D]: each row's new token (q, k, v [rows, heads, 1, D]) attends to its root, to its own tokens and to
itself.

own_k, own_v  [slots, heads, capacity, D]: row i's own tokens are in slot[i], behind what its root has beyond whole
              blocks of KEYS (`placing.bring`); the new one is written at place root_length[i] % KEYS + count[i] - 1
pool_k, pool_v  [T, heads, D]: the roots, row i's from root[i], root_length[i] tokens long
window  how many tokens a token sees, itself included
"""


@decode.register_fake
def _(q: Tensor, *args: object) -> Tensor:
    rows, heads, _, d = q.shape
    return q.new_empty(rows, 1, heads, d)
