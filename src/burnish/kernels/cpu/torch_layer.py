"""The two halves of a Llama layer, with backward passes written out.

    n = x r w,  r = 1 / sqrt(mean x^2 + eps)                     the norm; w its weight
    q, k, v = rotate(n Wq^T), rotate(n Wk^T), n Wv^T             what attention reads
    y = x + (silu(n Wg^T) * (n Wu^T)) Wd^T                       the inner layer, with the sum around it

Each half is one step of autograd: fewer passes over memory than the modules of transformers make, and gates and norms
are made again in the backward rather than kept. Tokens are worked on a thousand at a time, so that what is made in
between stays small.

Forward products are those of sampling (`Laid`): each row's result is the same bit for bit, whatever other rows there
are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from burnish.kernels.cpu.weight_layout import WeightLayout

Matrices = tuple[Tensor, Tensor, Tensor]
CHUNK = 1024  # tokens at a time


def scale_of(x: Tensor, eps: float) -> Tensor:
    """r: [N, 1]."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return torch.addcmul(_constant(eps, x.dtype), norm, norm, value=1 / x.shape[-1]).rsqrt_()


@cache
def _constant(number: float, dtype: torch.dtype) -> Tensor:
    """As a tensor: an operator that is given a number makes one of it every time, which for a few rows takes as long as
    the rest.
    """
    return torch.tensor(number, dtype=dtype)


def rotate_(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn the pairs (x_i, x_{i + D/2}) of x [N, heads, D] in place, by angles whose cosines and sines
    are [N, 1, D/2].
    """
    first, second = x.chunk(2, -1)
    turned = first * cos
    turned.addcmul_(second, sin, value=-1)
    second.mul_(cos).addcmul_(first, sin)
    first.copy_(turned)
    return x


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x r w, with gradient."""
    normed: Tensor = _Norm.apply(x, weight, eps)
    return normed


def queries_keys_values(
    x: Tensor, weight: Tensor, eps: float, laid: WeightLayout, projections: Matrices, biases: Sequence[Tensor | None],
    head_norms: Sequence[Tensor | None], angles: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """[N, heads, D] each, from x [N, H]; biases, norms of heads: or None each; angles: cosines and
    sines [N, 1, D/2].
    """
    laid = laid.of(*projections, biases=biases)
    q, k, v = _Read.apply(x, weight, eps, laid, *projections, *angles, *biases, *head_norms)
    return q, k, v


def get_ready_(
    made: Tensor, heads: int, width: int, head_norms: Sequence[Tensor | None], eps: float, angles: tuple[Tensor, Tensor]
) -> None:  # fmt: skip
    """Queries [N, heads x width] and the keys behind them, in place: normalised head by head, if they
    are, and rotated.
    """
    both = made.unflatten(-1, (-1, width))
    for part, norm_of in zip((both[:, :heads], both[:, heads:]), head_norms, strict=True):
        if norm_of is not None:
            part.mul_(scale_of(part, eps)).mul_(norm_of)
    rotate_(both, *angles)


def plus_product(x: Tensor, read: Tensor, laid: WeightLayout, weight: Tensor) -> Tensor:
    """x + read weight^T."""
    return x + _Product.apply(read, laid.of(weight), weight)


def inner_layer(
    x: Tensor,
    weight: Tensor,
    eps: float,
    laid: tuple[WeightLayout, WeightLayout],
    gate: Tensor,
    up: Tensor,
    down: Tensor,
) -> Tensor:
    """x plus what the inner layer makes of its norm."""
    inner, last = laid[0].of(gate, up), laid[1].of(down)
    y: Tensor = _Inner.apply(x, weight, eps, inner, last, gate, up, down)
    return y


def _chunks(n: int) -> Iterator[slice]:
    """About even pieces of n tokens, none larger than CHUNK."""
    pieces = max(1, -(-n // CHUNK))
    for k in range(pieces):
        yield slice(k * n // pieces, (k + 1) * n // pieces)


class _Sums:
    """Gradients of weights, summed over chunks; None for those that were not asked for."""

    def __init__(self, weights: tuple[Tensor | None, ...], wanted: tuple[bool, ...]) -> None:
        asked = zip(weights, wanted, strict=True)
        self.found = [torch.zeros_like(w) if yes and w is not None else None for w, yes in asked]

    def add(self, i: int, d: Tensor, read: Tensor) -> None:
        """Of a matrix, from its output's gradient [n, out] and its input [n, in]."""
        total = self.found[i]
        if total is not None:
            total.addmm_(d.t(), read)

    def add_bias(self, i: int, d: Tensor) -> None:
        """Of a bias, if there is one, from its output's gradient."""
        total = self.found[i]
        if total is not None:
            total.add_(d.sum(0))

    def add_norm(self, i: int, d: Tensor, unit: Tensor) -> None:
        """Of a norm's weight."""
        total = self.found[i]
        if total is not None:
            total.add_((d * unit).sum(0))


def _norm_backward(d: Tensor, x: Tensor, r: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient of x for that of n = x r w, and x r:  dx = r (d w - x r mean(d w x r))."""
    unit = x * r
    d = d * weight
    mean = torch.linalg.vecdot(d, unit).div_(x.shape[-1])[..., None]
    return d.addcmul_(unit, mean, value=-1).mul_(r), unit


class _Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        r = scale_of(x, eps)
        ctx.save_for_backward(x, weight, r)
        return (x * r).mul_(weight)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (d,), (x, weight, r) = grads, ctx.saved_tensors
        dx, unit = _norm_backward(d, x, r, weight)
        return dx, (d * unit).sum(0) if ctx.needs_input_grad[1] else None, None


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, laid: WeightLayout, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return laid.times(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (d,), (x, weight) = grads, ctx.saved_tensors
        return d @ weight, None, d.t() @ x if ctx.needs_input_grad[2] else None


class _Read(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, eps: float, laid: WeightLayout,
        wq: Tensor, wk: Tensor, wv: Tensor, cos: Tensor, sin: Tensor, *more: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
        r, width = scale_of(x, eps), 2 * cos.shape[-1]
        sizes = [len(w) for w in (wq, wk, wv)]
        out = [x.new_empty(len(x), size) for size in sizes]
        for part in _chunks(len(x)):
            made = laid.times((x[part] * r[part]).mul_(weight))
            angles = cos[part], sin[part]
            get_ready_(made[:, : sizes[0] + sizes[1]], sizes[0] // width, width, more[3:], eps, angles)
            for whole, mine in zip(out, made.split(sizes, -1), strict=True):
                whole[part] = mine
        ctx.save_for_backward(x, weight, r, wq, wk, wv, cos, sin, *more)
        ctx.eps = eps
        q, k, v = (whole.unflatten(-1, (-1, width)) for whole in out)
        return q, k, v

    @staticmethod
    def backward(ctx: Any, *d: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, r, wq, wk, wv, cos, sin, *more = ctx.saved_tensors
        matrices, norms, asked = (wq, wk, wv), more[3:], ctx.needs_input_grad
        sums = _Sums((weight, *matrices, *more), (asked[1], *asked[4:7], *asked[9:]))
        dx = torch.empty_like(x)
        for part in _chunks(len(x)):
            n = (x[part] * r[part]).mul_(weight)
            dn = torch.zeros_like(n)
            for i, (grad, w) in enumerate(zip(d, matrices, strict=True)):
                mine = grad[part].clone(memory_format=torch.contiguous_format) if i < 2 else grad[part]
                mine = rotate_(mine, cos[part], -sin[part]) if i < 2 else mine
                if i < 2 and norms[i] is not None:
                    raw = (n @ w.t()).unflatten(-1, (-1, mine.shape[-1]))
                    before = mine
                    mine, unit = _norm_backward(mine, raw, scale_of(raw, ctx.eps), norms[i])
                    sums.add_norm(i + 7, before.flatten(0, 1), unit.flatten(0, 1))
                flat = mine.flatten(1)
                sums.add(i + 1, flat, n)
                sums.add_bias(i + 4, flat)
                dn.addmm_(flat, w)
            dx[part], unit = _norm_backward(dn, x[part], r[part], weight)
            sums.add_norm(0, dn, unit)
        return dx, sums.found[0], None, None, *sums.found[1:4], None, None, *sums.found[4:]


class _Inner(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        eps: float,
        inner: WeightLayout,
        last: WeightLayout,
        wg: Tensor,
        wu: Tensor,
        wd: Tensor,
    ) -> Tensor:
        r, y = scale_of(x, eps), torch.empty_like(x)
        made: list[Tensor] = []  # gates and what they let through, side by side, chunk by chunk
        for part in _chunks(len(x)):
            both = inner.times((x[part] * r[part]).mul_(weight))
            gate, up = both.chunk(2, -1)
            torch.add(x[part], last.times(torch.nn.functional.silu(gate).mul_(up)), out=y[part])
            if any(ctx.needs_input_grad):
                made.append(both)
        ctx.save_for_backward(x, weight, r, wg, wu, wd, *made)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (d,), (x, weight, r, wg, wu, wd, *made) = grads, ctx.saved_tensors
        sums = _Sums((weight, wg, wu, wd), (ctx.needs_input_grad[1], *ctx.needs_input_grad[5:]))
        dx = torch.empty_like(x)
        for part, both in zip(_chunks(len(x)), made, strict=True):
            (g, u), dy = both.chunk(2, -1), d[part]
            n = (x[part] * r[part]).mul_(weight)
            opened = torch.nn.functional.silu(g)
            sums.add(3, dy, opened * u)
            da = dy @ wd
            dg = torch.ops.aten.silu_backward(da * u, g)
            du = opened.mul_(da)
            sums.add(1, dg, n)
            sums.add(2, du, n)
            dn = (dg @ wg).addmm_(du, wu)
            found, unit = _norm_backward(dn, x[part], r[part], weight)
            torch.add(found, dy, out=dx[part])
            sums.add_norm(0, dn, unit)
        return dx, sums.found[0], None, None, None, *sums.found[1:]
