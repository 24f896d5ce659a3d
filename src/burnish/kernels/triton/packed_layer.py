"""A layer over a pack, with its gradient, in few Triton kernels.

    x, y   the residual stream, and what is still to be added to it, after a norm `post` of its own, if there is one
    x <- x + post(y);  h = norm(x);  q, k, v = h Wqkv;  q, k = rotated(head_norm(q, k));  y = attention(q, k, v) Wo
    x <- x + post(y);  h = norm(x);  y = mlp(h)

The backward is written by hand: it keeps x (twice), q, k, v, the attention's output and the MLP's gate and up of each
layer, and recomputes the rest. Where heads are normalised it also keeps q and k as they were before, and y where it is.
Frozen weights get no gradient: with LoRA (adapters.py) only the adapters beside the matmuls do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from burnish.kernels.architectures.spec import LayerSpec
from burnish.kernels.triton import experts, packed_attention
from burnish.kernels.triton.adapters import Adapter, LayerAdapters
from burnish.kernels.triton.cublas import product
from burnish.kernels.triton.gate import gate, gate_backward
from burnish.kernels.triton.norm import add_norm, add_weighted, norm_backward
from burnish.kernels.triton.rotate import norm_and_rotate, norm_and_rotate_backward, rotate
from burnish.kernels.triton.weights import DenseRoom, Layer

Found = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class How:
    """What a layer needs besides numbers that have a gradient.

    late   norms are divided after the product that reads them, as the sampler does it (kernels/triton/matmul.py)
    exact  the library's matmuls add up in order, too, however few their rows
    room   where weights in four bits are made dense; None: they are dense
    """

    spec: LayerSpec
    positions: Tensor
    turn: Found
    table: Tensor
    window: int
    long: bool
    exact: bool
    late: bool
    room: DenseRoom | None = None

    def dense(self, layer: Layer) -> Layer:
        """The layer with weights that products can read, until the next layer is asked for."""
        return layer if self.room is None else self.room.dense(layer)

    def product(
        self, x: Tensor, weight: Tensor, adapter: Adapter | None, bias: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """x weight^T + bias with the adapter's part, and x A^T of the adapter, which its gradients need."""
        if adapter is None:
            return product(x, weight, bias, self.exact), None
        inner = adapter.inner(x, self.exact)
        return adapter.product(x, weight, bias, inner, self.exact), inner

    def into(self, x: Tensor, y: Tensor, post: Tensor | None, norm: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """x + post(y), what a product reads for its norm, and what the product's rows are still to be divided by."""
        total = torch.empty_like(x)
        if self.late:
            return total, *add_weighted(x, y, norm, self.spec.eps, total)
        return total, add_norm(x, y, norm, self.spec.eps, total, post, self.spec.offset), None

    def back(
        self, x: Tensor, norm: Tensor, grad: Tensor, more: Tensor | None, learns: bool, again: bool = True
    ) -> tuple[Tensor, Tensor | None, Tensor]:
        """Of a norm of x: d x + more, d norm if it learns, and its output again."""
        return norm_backward(x, norm, self.spec.eps, grad, more, self.spec.offset, again, learns)

    def back_after(self, y: Tensor, norm: Tensor | None, grad: Tensor, learns: bool) -> tuple[Tensor, Tensor | None]:
        """Of what is added to the residual stream, after a norm of its own, if there is one: d y and d norm."""
        if norm is None:
            return grad, None
        d_y, d_norm, _ = self.back(y, norm, grad, None, learns, again=False)
        return d_y, d_norm

    def turned(self, made: Tensor, norms: Found | None, divisors: Tensor | None, bias: Tensor | None) -> Tensor | None:
        """Divide, normalise and rotate: in place, or, where heads are normalised, queries and keys [N, heads x D]
        apart."""
        queries, keys, d = self.spec.of_heads
        bias = None if divisors is None else bias
        if norms is None:
            rotate(made, self.positions, *self.turn, queries + keys, d, False, divisors, bias)
            return None
        of = self.spec.eps, self.spec.offset
        return norm_and_rotate(made, self.positions, *self.turn, self.spec.of_heads, norms, *of, divisors, bias)

    def turned_back(
        self, grad: Tensor, made: Tensor, norms: Found | None, learns: bool
    ) -> tuple[Tensor | None, Tensor | None]:
        """The gradient of rotated heads becomes that of what the product made, in place; d of the norms of heads, if
        they learn."""
        queries, keys, d = self.spec.of_heads
        if norms is None:
            rotate(grad, self.positions, *self.turn, queries + keys, d, True)
            return None, None
        of = self.spec.eps, self.spec.offset
        return norm_and_rotate_backward(grad, made, self.positions, *self.turn, self.spec.of_heads, norms, *of, learns)

    def heads(self, made: Tensor, apart: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Views [N, heads, D] of queries, keys and values side by side, or of queries and keys that are `apart`."""
        queries, keys, d = self.spec.of_heads
        q, k, v = made.view(len(made), -1, d).split([queries, keys, keys], 1)
        if apart is not None:
            q, k = apart.view(len(made), -1, d).split([queries, keys], 1)
        return q, k, v


def over_pack(layer: Layer, x: Tensor, y: Tensor, post: Tensor | None, how: How) -> tuple[Tensor, Tensor, Found]:
    """x and y after a layer, and its keys and values [N, heads, D]."""
    held, layer = layer if layer.quantised else None, how.dense(layer)
    x, y, made, apart = _Layer.apply(
        x,
        y,
        post,
        layer.norm,
        layer.heads,
        layer.bias,
        *(layer.head_norms or (None, None)),
        layer.out,
        layer.after_attention,
        layer.second_norm,
        layer.router,
        layer.gate_and_up,
        layer.down,
        how,
        layer.adapters,
        held,
        *layer.adapters.parameters,
    )
    _, k, v = how.heads(made, apart)
    return x, y, (k, v)


# where weights stand among the arguments of _Layer
POST, NORM, HEADS, BIAS, HEAD_NORM, OUT, AFTER, SECOND, GATE_AND_UP, DOWN = 2, 3, 4, 5, 6, 8, 9, 10, 12, 13


def _back(grad: Tensor, weight: Tensor, adapter: Adapter | None) -> tuple[Tensor, Tensor | None]:
    """d x of a product from the gradient of its output, and what its adapter's gradients need."""
    if adapter is None:
        return grad @ weight, None
    d_inner = adapter.back(grad)
    return adapter.d_input(grad, weight, d_inner), d_inner


def _of_adapter(
    adapter: Adapter | None, grad: Tensor, d_inner: Tensor | None, x: Tensor, inner: Tensor | None
) -> list[Tensor]:
    """The gradients of an adapter's parameters, if there is one. inner: x A^T; None: the forward pass had another x,
    whose norm was not yet divided."""
    if adapter is None or d_inner is None:
        return []
    return adapter.grads(grad, d_inner, x, adapter.inner(x) if inner is None else inner)


def _dense_again(ctx: Any, *saved: Tensor) -> tuple[Tensor, ...]:
    """A layer's matrices; those in four bits made dense again, since other layers have used their room meanwhile."""
    if ctx.held is None:
        return saved
    layer = ctx.how.dense(ctx.held)
    return layer.heads, layer.out, layer.gate_and_up, layer.down


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        y: Tensor,
        post: Tensor | None,
        norm: Tensor,
        heads: Tensor,
        bias: Tensor | None,
        q_norm: Tensor | None,
        k_norm: Tensor | None,
        out: Tensor,
        after: Tensor | None,
        second: Tensor,
        router: Tensor | None,
        gate_and_up: Tensor,
        down: Tensor,
        how: How,
        lora: LayerAdapters,
        held: Layer | None,
        *adapted: Tensor,
    ) -> tuple[Tensor | None, ...]:
        norms = None if q_norm is None or k_norm is None else (q_norm, k_norm)
        x1, h, divisors = how.into(x, y, post, norm)
        made, inner_heads = how.product(h, heads, lora.heads, bias if divisors is None else None)
        apart = how.turned(made, norms, divisors, bias)
        q, k, v = how.heads(made, apart)
        seen, lse = packed_attention.forward(q, k, v, how.table, how.spec.scale, how.window, how.long)
        mixed, inner_out = how.product(seen.view(len(x), -1), out, lora.out)
        x2, h, divisors = how.into(x1, mixed, after, second)
        routed: list[Tensor] = []
        inner_mlp: tuple[Tensor | None, Tensor | None] = None, None
        if router is None:
            both, inner_both = how.product(h, gate_and_up, lora.gate_and_up)
            y2, inner_down = how.product(gate(both, divisors, how.spec.activation), down, lora.down)
            inner_mlp = inner_both, inner_down
        else:
            y2, both, routed = experts.forward(h, router, gate_and_up, down, how.spec, how.exact)
        kept = y if post is not None else None, mixed if after is not None else None
        matrices = (heads, out, gate_and_up, down) if held is None else (None, None, None, None)
        weights = post, norm, matrices[0], q_norm, k_norm, matrices[1], after, second, router, *matrices[2:]
        inner = inner_heads, inner_out, *inner_mlp
        ctx.save_for_backward(x1, x2, *kept, made, apart, seen, lse, both, divisors, *inner, *weights, *routed)
        ctx.how, ctx.lora, ctx.held = how, lora, held
        ctx.mark_non_differentiable(made, *([] if apart is None else [apart]))
        ctx.set_materialize_grads(False)  # zeros are not needed for them
        return x2, y2, made, apart

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        gx, gy = grads[:2]
        how: How = ctx.how
        lora: LayerAdapters = ctx.lora
        trained = ctx.needs_input_grad
        x1, x2, y, mixed, made, apart, seen, lse, both, divisors, *more = ctx.saved_tensors
        inner_heads, inner_out, *inner_mlp = more[:4]
        post, norm, heads, q_norm, k_norm, out, after, second, router, gate_and_up, down, *routed = more[4:]
        heads, out, gate_and_up, down = _dense_again(ctx, heads, out, gate_and_up, down)
        norms = None if q_norm is None or k_norm is None else (q_norm, k_norm)
        d_router: Tensor | None = None
        of_mlp: list[Tensor] = []
        if router is None:
            matrices, learned = (second, gate_and_up, down), (trained[SECOND], trained[GATE_AND_UP], trained[DOWN])
            d_x2, d_second, d_gate_and_up, d_down, of_mlp = _mlp_back(
                how, lora, (gx, gy), (x2, both, *inner_mlp), divisors, matrices, learned
            )
        else:
            h = add_norm(x2, None, second, how.spec.eps, None, None, how.spec.offset)
            weights = router, gate_and_up, down
            d_h, d_router, d_gate_and_up, d_down = experts.backward(gy.contiguous(), h, weights, both, routed, how.spec)
            d_x2, d_second, _ = how.back(x2, second, d_h, gx, trained[SECOND], again=False)
        d_mixed, d_after = how.back_after(mixed, after, d_x2, trained[AFTER])
        flat = seen.view(len(x1), -1)
        d_seen, d_inner = _back(d_mixed, out, lora.out)
        d_out = d_mixed.t() @ flat if trained[OUT] else None
        of_out = _of_adapter(lora.out, d_mixed, d_inner, flat, inner_out)
        d_made = torch.empty_like(made)
        q, k, v = how.heads(made, apart)
        packed_attention.backward(
            d_seen.view_as(seen), q, k, v, seen, lse, how.table, how.spec.scale, how.window, how.heads(d_made)
        )
        d_norms = how.turned_back(d_made, made, norms, trained[HEAD_NORM])
        d_h, d_inner = _back(d_made, heads, lora.heads)
        d_x1, d_norm, h = how.back(x1, norm, d_h, d_x2, trained[NORM])
        d_bias, d_heads = d_made.sum(0) if trained[BIAS] else None, d_made.t() @ h if trained[HEADS] else None
        of_heads = _of_adapter(lora.heads, d_made, d_inner, h, None if how.late else inner_heads)
        d_y, d_post = how.back_after(y, post, d_x1, trained[POST])
        return (
            d_x1,
            d_y,
            d_post,
            d_norm,
            d_heads,
            d_bias,
            *d_norms,
            d_out,
            d_after,
            d_second,
            d_router,
            d_gate_and_up,
            d_down,
            None,
            None,
            None,
            *of_heads,
            *of_out,
            *of_mlp,
        )


def _mlp_back(
    how: How,
    lora: LayerAdapters,
    grads: Found,
    kept: tuple[Tensor, Tensor, Tensor | None, Tensor | None],
    divisors: Tensor | None,
    weights: tuple[Tensor, Tensor, Tensor],
    trained: tuple[bool, bool, bool],
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None, list[Tensor]]:
    """Of a dense MLP: d x, d of its norm, of gate and up and of down where they are trained, and of its adapters.

    kept: x, gate and up, and x A^T of the adapters of gate and up and of down
    """
    gx, gy = grads
    x2, both, inner_both, inner_down = kept
    second, gate_and_up, down = weights
    d_gated, d_inner_down = _back(gy, down, lora.down)
    d_both, gated = gate_backward(both, divisors, d_gated, how.spec.activation)
    d_h, d_inner = _back(d_both, gate_and_up, lora.gate_and_up)
    d_x2, d_second, h = how.back(x2, second, d_h, gx, trained[0])
    d_gate_and_up = d_both.t() @ h if trained[1] else None
    d_down = gy.t() @ gated if trained[2] else None
    adapted = _of_adapter(lora.gate_and_up, d_both, d_inner, h, None if how.late else inner_both)
    adapted += _of_adapter(lora.down, gy, d_inner_down, gated, inner_down)
    return d_x2, d_second, d_gate_and_up, d_down, adapted


class _Last(torch.autograd.Function):
    """The norm after the last layer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, post: Tensor | None, norm: Tensor, eps: float, offset: float) -> Tensor:
        total = torch.empty_like(x)
        out = add_norm(x, y, norm, eps, total, post, offset)
        ctx.save_for_backward(total, y if post is not None else None, post, norm)
        ctx.of = eps, offset
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        total, y, post, norm = ctx.saved_tensors
        eps, offset = ctx.of
        _, _, learns_post, learns = ctx.needs_input_grad[:4]
        d_x, d_norm, _ = norm_backward(total, norm, eps, grads[0].contiguous(), None, offset, False, learns)
        d_y, d_post = d_x, None
        if post is not None:
            d_y, d_post, _ = norm_backward(y, post, eps, d_x, None, offset, False, learns_post)
        return d_x, d_y, d_post, d_norm, None, None


def last_norm(x: Tensor, y: Tensor, post: Tensor | None, norm: Tensor, eps: float, offset: float) -> Tensor:
    """[N, H]: norm(x + post(y))."""
    found: Tensor = _Last.apply(x, y, post, norm, eps, offset)
    return found
