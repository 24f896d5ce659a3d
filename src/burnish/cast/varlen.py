"""Attention over packed rows on a CPU (cast/tiled.py has the GPU's), with beginnings that several rows share read once, forward and backward.

A child's token attends to two stretches: its root (all of it) and itself (causally). Each is an attention of its own,
with its output o and its log-sum-exp l; the attention over both together is

    l = log(e^l1 + e^l2),    o = o1 e^(l1 - l) + o2 e^(l2 - l).

The backward of attention needs only the probabilities e^(s - l) and the sum over do * o. Called on each part with the
joined l and o, the stock backward kernels give the exact gradient of the whole.

Tensors are [N, heads, D]; log-sum-exps are [N, heads].
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from burnish.cast.packing import Cuts, Packed


def attend(q: Tensor, k: Tensor, v: Tensor, packed: Packed, scale: float, window: int | None) -> Tensor:
    """[N, heads, D]: attention over the pack. window: how many tokens back a token sees, itself included."""
    window = window if window is not None and window < packed.longest else None
    if window is not None and packed.shared:
        raise ValueError("rows that share a beginning are longer than the model's window; pack them unshared")
    if packed.table is not None:
        from burnish.cast import tiled

        return tiled.attend(q, k, v, packed.table, scale, window or 0)[0]  # type: ignore[no-any-return]
    return _Attend.apply(q, k, v, packed, scale, window)  # type: ignore[no-any-return]


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, packed: Packed, scale: float, window: int | None) -> Tensor:
        out, lse = _whole(q, k, v, packed, scale, window)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.how = packed, scale, window
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return *_whole_backward(grad, *ctx.saved_tensors, *ctx.how), None, None, None


def _whole(q: Tensor, k: Tensor, v: Tensor, packed: Packed, scale: float, window: int | None) -> tuple[Tensor, Tensor]:
    """Every stretch looking at itself, and children looking at their roots."""
    n = packed.n_roots
    parts = [_forward(q[part], k[part], v[part], cuts, True, scale, window) for part, cuts in _own(packed)]
    out, lse = (torch.cat(x) if len(x) > 1 else x[0] for x in zip(*parts, strict=True))
    if packed.in_roots is not None:
        seen, weight = _forward(q[n:], k[:n], v[:n], packed.in_roots, False, scale, None)
        out[n:] = torch.lerp(out[n:], seen, torch.sigmoid(weight - lse[n:])[..., None])
        lse[n:] = torch.logaddexp(lse[n:], weight)
    return out, lse


def _whole_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
    packed: Packed, scale: float, window: int | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    n = packed.n_roots
    grad = grad.contiguous()
    parts = [
        _backward(grad[part], q[part], k[part], v[part], out[part], lse[part], cuts, True, scale, window)
        for part, cuts in _own(packed)
    ]
    dq, dk, dv = (torch.cat(x) if len(x) > 1 else x[0] for x in zip(*parts, strict=True))
    if packed.in_roots is not None:
        more = _backward(grad[n:], q[n:], k[:n], v[:n], out[n:], lse[n:], packed.in_roots, False, scale, None)
        dq[n:] += more[0]
        dk[:n] += more[1]
        dv[:n] += more[2]
    return dq, dk, dv


def _own(packed: Packed) -> list[tuple[slice, Cuts]]:
    """Every stretch looking at itself: roots and children apart, because they are padded to the longest of them."""
    assert packed.roots is not None
    if packed.children is None:
        return [(slice(None), packed.roots)]
    return [(slice(0, packed.n_roots), packed.roots), (slice(packed.n_roots, None), packed.children)]


def _forward(
    q: Tensor, k: Tensor, v: Tensor, cuts: Cuts, causal: bool, scale: float, window: int | None
) -> tuple[Tensor, Tensor]:
    """Output and log-sum-exp of queries that look at the keys of their stretch."""
    wide_q, wide_k, wide_v = _wide(q, k, v, cuts)
    mask = _mask(cuts, causal, window, q.dtype)
    out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        wide_q, wide_k, wide_v, 0.0, causal and mask is None, attn_mask=mask, scale=scale
    )
    return _narrow(out, cuts.padded_q[1]), _narrow(lse, cuts.padded_q[1])


def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor,
    cuts: Cuts, causal: bool, scale: float, window: int | None,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of q, k, v, for the probabilities that `lse` normalises."""
    wide_q, wide_k, wide_v = _wide(q, k, v, cuts)
    mask, places = _mask(cuts, causal, window, q.dtype), cuts.padded_q[0]
    wide_out, wide_lse = _rows(out, places).transpose(1, 2), _rows(lse, places).transpose(1, 2)
    dq, dk, dv = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        _zero_padded(grad, cuts), wide_q, wide_k, wide_v, wide_out, wide_lse,
        0.0, causal and mask is None, attn_mask=mask, scale=scale,
    )  # fmt: skip
    real_q, real_k = cuts.padded_q[1], cuts.padded_k[1]
    shared = k.shape[1], q.shape[1] // k.shape[1]
    dk, dv = (_narrow(x.unflatten(1, shared).sum(2), real_k) for x in (dk, dv))
    return _narrow(dq, real_q), dk, dv


def _wide(q: Tensor, k: Tensor, v: Tensor, cuts: Cuts) -> tuple[Tensor, Tensor, Tensor]:
    """[S, heads, longest, D] of each, keys and values repeated for the queries that share them."""
    times = q.shape[1] // k.shape[1]
    wide_q = _rows(q, cuts.padded_q[0]).transpose(1, 2)
    wide_k, wide_v = (_rows(x, cuts.padded_k[0]).transpose(1, 2) for x in (k, v))
    if times > 1:
        wide_k, wide_v = (x[:, :, None].expand(-1, -1, times, -1, -1).flatten(1, 2) for x in (wide_k, wide_v))
    return wide_q, wide_k, wide_v


def _rows(x: Tensor, places: Tensor) -> Tensor:
    """x[places]: whole rows are copied at once, which on a CPU takes half as long as indexing."""
    return x.index_select(0, places.flatten()).unflatten(0, places.shape)


def _narrow(wide: Tensor, real: Tensor) -> Tensor:
    """[N, heads, ...] of [S, heads, longest, ...]: what is no padding, end to end."""
    return wide.transpose(1, 2).flatten(0, 1).index_select(0, real.flatten().nonzero()[:, 0])


def _zero_padded(grad: Tensor, cuts: Cuts) -> Tensor:
    """[S, heads, longest, D]: queries that are padding ask for nothing."""
    places, real = cuts.padded_q
    return _rows(grad, places).masked_fill_(~real[..., None, None], 0).transpose(1, 2)


def _mask(cuts: Cuts, causal: bool, window: int | None, dtype: torch.dtype) -> Tensor | None:
    """What the kernel's own causal rule does not say: keys that are padding, and keys before the window."""
    if not causal:
        return cuts.key_mask(dtype)
    if window is None:
        return None
    t = torch.arange(cuts.longest_q, device=cuts.q.device)
    back = t[:, None] - t[None]
    return torch.zeros(back.shape, dtype=dtype).masked_fill((back < 0) | (back >= window), -torch.inf)[None, None]
