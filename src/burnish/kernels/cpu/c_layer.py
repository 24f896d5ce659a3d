"""Layers of a Llama in our own kernels (kernels/*.c), in fp32: a layer over a pack, with its backward.

    n = norm(x),  q, k, v = rotate(n Wq^T), rotate(n Wk^T), n Wv^T      `found`, side by side (with biases and norms of
    heads, if any)
    m = x + attention(q, k, v) Wo^T                                     `seen` is what attention made, `middle` is m
    y = m + (silu(g) * u) Wd^T,  g, u = norm(m) Wg^T, norm(m) Wu^T      `both`: g and u

The backward's products are ours, or torch's where those are faster (`product`); what lies between them is ours, and so
is attention.
Norms and gates are made again there.
Rows without gradient (those of a group whose replies all got the same reward, say) take no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_long, c_void_p
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from burnish.forward.prefix_tree import Tree
from burnish.kernels.architectures.spec import LayerSpec
from burnish.kernels.cpu import build
from burnish.kernels.cpu.activation_cache import Recalled
from burnish.kernels.cpu.c_adapters import Adapters, back_, grads
from burnish.kernels.cpu.c_attention import told, with_gradient
from burnish.kernels.cpu.weight_layout import WeightLayout
from burnish.util.mkl import made_by_intel

Parts = tuple[Tensor, ...]

if TYPE_CHECKING:
    from burnish.kernels.cpu.llama import Layer


def panel_width() -> int:
    """Columns of a product that the kernels compute at once; 0 without kernels."""
    run = build.kernels()
    return 0 if run is None else int(run.columns_of_a_panel())


def sizes(spec: LayerSpec) -> build.Shape | None:
    """What the kernels get of a model; None where they cannot run it, or are not there."""
    wide = panel_width()
    if not wide or spec.head_dim % wide or spec.inner % (wide // 2):
        return None
    return build.Shape(spec.hidden, *spec.of_heads, spec.inner, spec.eps, spec.scale)


def over_pack(
    layer: Layer,
    shape: build.Shape,
    x: Tensor,
    angles: tuple[Tensor, Tensor],
    tree: Tree,
    into: Parts | None = None,
    known: Recalled | None = None,
) -> tuple[Tensor, Tensor]:
    """A layer's y from x [N, H], and what it found: keys and values lie in it.

    into: where what its backward would need is to be kept; known: where all that is, since the sampler has computed it
    (kernels/cpu/activation_cache.py)
    """
    a, m = layer.self_attn, layer.mlp
    weights = (
        layer.input_layernorm.weight, a.q_proj.weight, a.k_proj.weight, a.v_proj.weight, a.o_proj.weight,
        layer.post_attention_layernorm.weight, m.gate_proj.weight, m.up_proj.weight, m.down_proj.weight,
        *a.biases, *a.head_norms,
    )  # fmt: skip
    laid = layer.lay_out() if known is None else ()
    adapters = layer.adapters
    parts = [part for some in adapters for one in some for part in ((None, None) if one is None else (one.a, one.b))]
    y, found = _Layer.apply(x, laid, shape, tree, into, known, adapters, *angles, *weights, *parts)
    return y, found


GIVEN = 9  # arguments of _Layer before the weights
WEIGHTS = 14  # and how many of these there are; A and B of the adapters of each matrix follow


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, laid: tuple[WeightLayout, ...], shape: build.Shape, tree: Tree, into: Parts | None,
        known: Recalled | None, adapters: tuple[Adapters, ...], cos: Tensor, sin: Tensor, *given: Tensor | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        x, both, weights = x.contiguous(), cast("Tensor | None", None), given[:WEIGHTS]
        ctx.how = shape, tree, known, adapters
        if known is not None:
            found = x.new_empty(0)
            ctx.mark_non_differentiable(found)
            ctx.save_for_backward(None, cos, sin, *[None] * 5, *weights)
            # it is not read between layers; and one of its own, or it would keep alive what keeps it alive
            return torch.empty_like(x) if known.y is None else known.y.detach(), found
        n, seen_wide, learns = len(x), shape.heads * shape.width, any(ctx.needs_input_grad)
        y, normed, opened = torch.empty_like(x), torch.empty_like(x), x.new_empty(n, shape.inner)
        if into is not None:
            into[0].copy_(x)
            _, found, seen, middle, both = into
        else:
            found = x.new_empty(n, seen_wide + 2 * shape.kv_heads * shape.width)
            seen, middle = x.new_empty(n, seen_wide), torch.empty_like(x)
            if learns:
                both = x.new_empty(n, 2 * shape.inner)
        raw = x.new_empty(n, seen_wide + shape.kv_heads * shape.width) if learns and weights[-1] is not None else None
        its = build.LayerAt(*weights_at(laid, weights[0], weights[5], weights[-2:]))
        run = build.there()
        run.layer(
            byref(shape),
            byref(its),
            byref(told(tree, n)),
            *where(cos, sin, x, found, raw, seen, middle, both, y, normed, opened),
        )
        ctx.mark_non_differentiable(found)
        if learns:
            ctx.save_for_backward(x, cos, sin, found, seen, middle, both, raw, *weights)
        return y, found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        dy, (shape, tree, known, adapters) = grads[0], ctx.how
        saved = ctx.saved_tensors
        held, weights = saved[:8], saved[8:]
        some = with_gradient(tree, dy)
        rows = None if some is None else some[1]
        if some is not None:
            tree, dy = some[0], dy.index_select(0, some[1])
        asked = ctx.needs_input_grad[GIVEN:]
        dx, *others = _back(shape, tree, dy, *_of_rows(rows, held, known), weights, asked, adapters)
        if rows is not None and dx is not None:
            dx = dx.new_zeros(len(held[1]), dx.shape[1]).index_copy_(0, rows, dx)
        return dx, *[None] * (GIVEN - 1), *others


def _of_rows(rows: Tensor | None, held: Sequence[Any], known: Recalled | None) -> tuple[list[Any], Tensor | None]:
    """What the backward needs of these rows of a pack, or of all; of x, middle and both, all there is, and where they
    are in it.
    """
    x, cos, sin, found, seen, middle, both, raw = held
    at = rows
    if known is not None:
        at = known.numbers if rows is None else known.numbers[rows]
        x, found, seen, middle, both = known.held.all()
    found, seen, raw = (part if part is None or at is None else part.index_select(0, at) for part in (found, seen, raw))
    cos, sin = (part if rows is None else part.index_select(0, rows) for part in (cos, sin))
    return [x, cos, sin, found, seen, middle, both, raw], at


def _back(
    shape: build.Shape,
    tree: Tree,
    dy: Tensor,
    held: Sequence[Any],
    at: Tensor | None,
    weights: Sequence[Any],
    asked: Sequence[bool],
    adapters: tuple[Adapters, ...],
) -> tuple[Tensor | None, ...]:
    """The gradients of a layer's x, of those of its weights that are asked for, and of its adapters.

    at: where in x, middle and both the rows are, if not one by one.
    """
    of_read, of_out, of_open, of_down = adapters
    x, cos, sin, found, seen, middle, both, raw = held
    norm, wq, wk, wv, wo, inner_norm, wg, wu, wd, *_, q_norm, k_norm = weights
    heads, inner = [len(wq), len(wk), len(wv)], [shape.inner, shape.inner]
    run = build.there()
    dy = dy.contiguous()
    d = product(dy, wd)
    t_down = back_(of_down, dy, [len(wd)], d)
    opened, d_both = torch.empty_like(d), d.new_empty(len(d), 2 * shape.inner)
    run.gate_back(*where(d, both, at, opened, d_both), len(d), shape.inner)
    d_wd, d_down = product(dy.t(), opened) if asked[8] else None, grads(of_down, dy, [len(wd)], t_down, opened)
    d_normed = product(d_both, wg, wu)
    t_open = back_(of_open, d_both, inner, d_normed)
    read = normed(middle, inner_norm, shape.eps, at) if any(asked[6:8]) or any(of_open) else d_normed
    d_open = product(d_both.t(), read) if any(asked[6:8]) else None
    d_opening = grads(of_open, d_both, inner, t_open, read)
    d_middle, d_inner_norm = _norm_back(d_normed, middle, inner_norm, shape.eps, dy, at)
    d_wo, d_seen = product(d_middle.t(), seen) if asked[4] else None, product(d_middle, wo)
    t_out = back_(of_out, d_middle, [len(wo)], d_seen)
    d_out = grads(of_out, d_middle, [len(wo)], t_out, seen)
    d_found = torch.zeros_like(found)
    run.attention_back(byref(shape), byref(told(tree, len(dy))), *where(cos, sin, found, seen, d_seen, d_found))
    of_heads: Sequence[Tensor | None] = (None, None)
    if q_norm is not None:
        of_heads = x.new_empty(2, shape.width).unbind()
        run.head_norms_back(byref(shape), *where(q_norm, k_norm, raw, d_found, of_heads[0]), len(dy))
    d_normed = product(d_found, wq, wk, wv)
    t_read = back_(of_read, d_found, heads, d_normed)
    read = normed(x, norm, shape.eps, at) if any(asked[1:4]) or any(of_read) else d_normed
    d_read = product(d_found.t(), read) if any(asked[1:4]) else None
    d_reading = grads(of_read, d_found, heads, t_read, read)
    dx, d_norm = _norm_back(d_normed, x, norm, shape.eps, d_middle, at)
    each_read = [None] * 3 if d_read is None else d_read.split(heads)
    each_open = [None] * 2 if d_open is None else d_open.split(inner)
    of_biases = d_found.sum(0).split(heads) if any(asked[9:12]) else [None] * 3
    of_weights = d_norm, *each_read, d_wo, d_inner_norm, *each_open, d_wd, *of_biases, *of_heads
    return dx, *of_weights, *d_reading, *d_out, *d_opening, *d_down


def product(a: Tensor, *b: Tensor) -> Tensor:
    """a times b, in fp32: by us where MKL, which is made for Intel's processors, is slower.

    a may be a matrix turned around, and b up to three of them, one below the other.
    """
    if made_by_intel() or not a.numel():
        return a @ (torch.cat(b) if len(b) > 1 else b[0])
    turned = not a.is_contiguous()
    lines, b = a.t().contiguous() if turned else a, tuple(part.contiguous() for part in b)
    below = build.Below((c_void_p * 3)(*where(*b)), (c_long * 3)(*map(len, b)))
    c = a.new_empty(len(a), b[0].shape[1])
    build.there().multiply(lines.data_ptr(), turned, byref(below), c.data_ptr(), *a.shape, c.shape[1])
    return c


def where(*tensors: Tensor | None) -> list[int | None]:
    """Where tensors lie."""
    return [None if x is None else x.data_ptr() for x in tensors]


def weights_at(
    laid: tuple[WeightLayout, ...], norm: Tensor | None, inner_norm: Tensor | None, head_norms: Sequence[Tensor | None]
) -> list[int | None]:
    """As LayerAt names them."""
    read, out, opening, down = (part.ordered for part in laid)
    return where(norm, read, out, inner_norm, opening, down, laid[0].bias, *head_norms)


def normed(x: Tensor, weight: Tensor, eps: float, at: Tensor | None = None) -> Tensor:
    """norm(x) of [N, H], or of its rows `at`, without gradient."""
    y, run = x.new_empty(len(x if at is None else at), x.shape[1]), build.there()
    run.norm(*where(x, at, weight, y), *y.shape, eps)
    return y


class Norm(torch.autograd.Function):
    """norm(x), with gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.eps = eps
        return normed(x, weight, eps)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return *_norm_back(grads[0].contiguous(), x, weight, ctx.eps, None), None


def _norm_back(
    d: Tensor, x: Tensor, weight: Tensor, eps: float, plus: Tensor | None, at: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradient of x, or of its rows `at`, for that of norm(x), and `plus`; the gradient of the norm's weight."""
    dx, dw = torch.empty_like(d), torch.empty_like(weight)
    build.there().norm_back(*where(d, x, at, weight, plus, dx, dw), *d.shape, eps)
    return dx, dw
