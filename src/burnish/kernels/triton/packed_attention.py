"""Attention over packed rows on a GPU (Triton), beginnings that rows share read once, forward and backward.

The pack is cut into tiles of up to TILE tokens of one stretch. A table says of each tile (one line of int32 each):

    start, length      its tokens
    own, end           the stretch that it is a part of
    root, root_length  the beginning that its stretch goes on from (root_length 0: none)
    kids, kids_end     the tokens that go on from its stretch (kids = kids_end: none)

A query tile looks at its root and, causally, at its own stretch; a key tile is looked at by the later tokens of its own
stretch and by all of its kids. No sum is taken in an order that chance decides, so the same pack gives the same bits.
Lines of length 0 do nothing: a table may be longer than the pack needs, so that a pass can be captured as a CUDA graph.

Tensors are [N, heads, D]; log-sum-exps are [N, heads], to the base 2.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from torch import Tensor

from burnish.forward.packing import KEYS, SPAN, TILE
from burnish.kernels.triton.packed_backward import d_keys_kernel, d_kids_kernel, d_query_kernel
from burnish.kernels.triton.packed_forward import forward_kernel

LOG2E = 1.4426950408889634
FAR = 1 << 30
AHEAD = {"num_warps": 4, "num_stages": 3}  # as measured on an H200
BACK = {"BLOCK": TILE, "num_warps": 4, "num_stages": 1}
# heads of more than 128 numbers: with the block and warps above, 350 registers of each thread would lie in memory, so
# 116
WIDE_BACK = {"BLOCK": 32, "num_warps": 8, "num_stages": 1}
KIDS = {
    "SPLIT": 4,
    "FROM": 512,
}  # how many tokens of kids are looked at apart from a tile, and in how many shares for each head
ROOM = 96 << 20  # bytes for what they give


def _sizes(q: Tensor, k: Tensor) -> dict[str, int]:
    d = q.shape[-1]
    return {"GROUP": q.shape[1] // k.shape[1], "D": d, "DP": max(16, triton.next_power_of_2(d)), "BM": TILE}


def _strides(*tensors: Tensor) -> list[int]:
    return [x.stride(i) for x in tensors for i in (0, 1)]


def _straight(*tensors: Tensor) -> list[Tensor]:
    """The numbers of a head side by side, whatever comes before."""
    return [x if x.stride(-1) == 1 else x.contiguous() for x in tensors]


def forward(
    q: Tensor, k: Tensor, v: Tensor, table: Tensor, scale: float, window: int, long: bool = False
) -> tuple[Tensor, Tensor]:
    """Attention [N, heads, D] and its log-sum-exp [N, heads] to the base 2. long: in spans, as the sampler's are
    (engine/kernels.py).
    """
    q, k, v = _straight(q, k, v)
    n, heads, d = q.shape
    out = torch.empty(n, heads, d, dtype=q.dtype, device=q.device)
    lse = torch.empty(n, heads, dtype=torch.float32, device=q.device)
    forward_kernel[(len(table), heads)](
        q,
        k,
        v,
        out,
        lse,
        table,
        scale * LOG2E,
        window or FAR,
        *_strides(q, k, v),
        heads,
        **_sizes(q, k),
        BLOCK=KEYS,
        SPAN=SPAN,
        LONG=long,
        **AHEAD,
    )
    return out, lse


def backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    table: Tensor,
    scale: float,
    window: int,
    into: tuple[Tensor, ...] | None = None,
) -> tuple[Tensor, ...]:
    """Gradients of q, k, v; into: where they are to be written."""
    q, k, v = _straight(q, k, v)
    grad = grad.contiguous()
    heads, shared = q.shape[1], k.shape[1]
    dq, dk, dv = into or (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    delta = torch.empty_like(lse)
    back = BACK if q.shape[2] <= 128 else WIDE_BACK
    far, known = window or FAR, (q, k, v)
    d_query_kernel[(len(table), heads)](
        *known,
        out,
        lse,
        grad,
        delta,
        dq,
        table,
        scale * LOG2E,
        scale,
        far,
        *_strides(*known, dq),
        heads,
        **_sizes(q, k),
        **back,
    )
    sizes, parts = _sizes(q, k), KIDS["SPLIT"] * (heads // shared)
    held = 2 * TILE * sizes["DP"]
    lines = min(len(table), 64, ROOM // (4 * held * shared * parts))  # roots come first
    part = torch.empty(lines * shared * parts * held, dtype=torch.float32, device=q.device)
    how = {**sizes, **KIDS, **back}
    seen = *known, lse, grad, delta
    d_kids_kernel[(lines, shared, parts)](
        *seen, part, table, scale * LOG2E, far, *_strides(*known), heads, shared, **how
    )
    steps = _strides(*known, dk, dv)
    d_keys_kernel[(len(table), shared)](
        *seen, dk, dv, part, table, scale * LOG2E, scale, far, *steps, heads, shared, lines, **how
    )
    return dq, dk, dv


def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor, table: Tensor, scale: float, window: int
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = backward(grad, q, k, v, out, lse, table, scale, window)
    return dq, dk, dv


def _attend(q: Tensor, k: Tensor, v: Tensor, table: Tensor, scale: float, window: int) -> tuple[Tensor, Tensor]:
    return forward(q, k, v, table, scale, window)


# As operators, so that a compiler takes each as one piece.

attend = torch.library.custom_op(
    "burnish::attend",
    _attend,
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, Tensor table, float scale, int window) -> (Tensor, Tensor)",
)


@attend.register_fake
def _(q: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    n, heads, d = q.shape
    return q.new_empty(n, heads, d), q.new_empty(n, heads, dtype=torch.float32)


attend_backward = torch.library.custom_op(
    "burnish::attend_backward",
    _backward,
    mutates_args=(),
    schema="(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, Tensor table, float scale, int window) "
    "-> (Tensor, Tensor, Tensor)",
)


@attend_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.empty(x.shape, dtype=x.dtype, device=x.device) for x in (q, k, v))
    return dq, dk, dv


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    q, k, v, table, scale, window = inputs
    ctx.save_for_backward(q, k, v, *output, table)
    ctx.how = scale, window


def _go_back(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *torch.ops.burnish.attend_backward(grad, *ctx.saved_tensors, *ctx.how), None, None, None


attend.register_autograd(_go_back, setup_context=_keep)
