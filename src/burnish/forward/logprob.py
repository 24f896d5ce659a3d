"""Log-probs and entropies of chosen tokens from hidden states, without ever holding the logits of all of them.

    z = h W^T / temperature,   logp = z[chosen] - lse(z),   entropy = lse(z) - sum_v p_v z_v

    d logp / dz = onehot(chosen) - p,     d entropy / dz = -p (log p + entropy)

Tokens are worked on in chunks; the backward makes each chunk's logits again. On a GPU the last chunk keeps its own
until the backward, which begins with it; on a CPU few enough tokens keep theirs. Products of half-precision numbers are
summed, kept and normalised in fp32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from burnish.forward.accelerate import LogProbKernels, kernels
from burnish.forward.autograd import Context

CHUNK = {"cpu": 1 << 25, "cuda": 1 << 27}  # logits worked on at once
QUARTER = 1 << 28  # up to so many on a GPU, where that is a quarter of a training pass: fewer chunks are faster
HOLD = 1 << 27  # logits that are kept for the backward rather than made twice


Matmul = Callable[[Tensor], Tensor]  # states [N, H] -> states @ weight.T, as the sampler computes it


def logp_entropy(
    states: Tensor,
    weight: Tensor,
    chosen: Tensor,
    factor: float = 1.0,
    entropy: bool = False,
    matmul: Matmul | None = None,
) -> tuple[Tensor, Tensor]:
    """[N] log-probs and [N] entropies (zeros unless asked for) of logits `states @ weight.T * factor`."""
    return _head(states, weight, chosen, factor, entropy, matmul)


def logits_of(states: Tensor, weight: Tensor, factor: float = 1.0, matmul: Matmul | None = None) -> Tensor:
    """[N, V] in at least fp32."""
    if matmul is not None:
        logits = matmul(states)
    elif states.dtype in (torch.bfloat16, torch.float16):
        if states.is_cuda:
            logits = torch.mm(states, weight.t(), out_dtype=torch.float32)
        else:
            logits = states.float() @ weight.t().float()
    else:
        logits = states @ weight.t()
    return logits if factor == 1.0 else logits.mul_(factor)


def live_logits(states: Tensor, weight: Tensor, factor: float = 1.0, matmul: Matmul | None = None) -> Tensor:
    """The same with gradient, also where a kernel makes the product."""
    return _product(states, weight, factor, matmul)


class _ProductContext(Context, Protocol):
    factor: float


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _ProductContext, states: Tensor, weight: Tensor, factor: float, matmul: Matmul | None) -> Tensor:
        ctx.save_for_backward(states, weight)
        ctx.factor = factor
        return logits_of(states, weight, factor, matmul)

    @staticmethod
    def backward(ctx: _ProductContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        states, weight = ctx.saved_tensors
        d = (grads[0] if ctx.factor == 1.0 else grads[0] * ctx.factor).to(states.dtype)
        d_states = d @ weight.to(d.dtype) if ctx.needs_input_grad[0] else None
        d_weight = (d.t() @ states).to(weight.dtype) if ctx.needs_input_grad[1] else None
        return d_states, d_weight, None, None


_product: Callable[[Tensor, Tensor, float, Matmul | None], Tensor] = _Product.apply


class _HeadContext(Context, Protocol):
    """held: logits, or log-probs where torch makes them, by chunks of `size` tokens."""

    held: list[Tensor]
    factor: float
    size: int
    entropy: bool
    matmul: Matmul | None


class _Head(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: _HeadContext,
        states: Tensor,
        weight: Tensor,
        chosen: Tensor,
        factor: float,
        entropy: bool,
        matmul: Matmul | None,
    ) -> tuple[Tensor, Tensor]:
        n, run, learns = len(states), _fused(states), any(ctx.needs_input_grad[:2])
        size, few = _even(n, _at_once(states, n * len(weight), learns) // len(weight)), n * len(weight) <= HOLD
        logp, lse, spread = (_wide_empty(states, n) for _ in range(3))
        spread.zero_()
        chunks = []  # logits, or log-probs where torch makes them
        for i in range(0, n, size):
            part = slice(i, min(i + size, n))
            if run is not None:
                logits = logits_of(states[part], weight, matmul=matmul)
                run.from_logits(logits, chosen[part], factor, lse[part], logp[part], spread[part], entropy)
            else:
                logits = torch.log_softmax(logits_of(states[part], weight, factor, matmul), -1)
                logp[part] = logits.gather(-1, chosen[part, None])[:, 0]
                if entropy:
                    spread[part] = logits.exp().mul_(logits).sum(-1).neg_()
            if learns and (part.stop == n if states.is_cuda else few):
                chunks.append(logits)
            del logits
        ctx.save_for_backward(states, weight, chosen, lse, spread)
        ctx.held, ctx.factor, ctx.size, ctx.entropy, ctx.matmul = chunks, factor, size, entropy, matmul
        ctx.set_materialize_grads(False)  # no gradient of the entropies is no pass over logits for them
        return logp, spread

    @staticmethod
    def backward(ctx: _HeadContext, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        grad, grad_entropy = grads
        states, weight, chosen, lse, spread = ctx.saved_tensors
        n, size, factor, run = len(states), ctx.size, ctx.factor, _fused(states)
        grad = torch.zeros_like(lse) if grad is None else grad
        more = grad_entropy if ctx.entropy else None
        made = torch.empty_like if states.is_cuda else torch.zeros_like
        d_states = made(states) if ctx.needs_input_grad[0] else None
        d_weight = None
        for i in reversed(range(0, n, size)):
            whole = slice(i, min(i + size, n))
            at: slice | Tensor = whole
            logits = ctx.held.pop() if ctx.held else None
            if not states.is_cuda:
                at, logits = _with_gradient(whole, logits, grad, more)
            states_here, grad_here, entropies = states[at], grad[at].contiguous(), None if more is None else more[at]
            if run is not None:
                logits = logits_of(states_here, weight, matmul=ctx.matmul) if logits is None else logits
                d = run.d_logits(logits, chosen[at], factor, lse[at], spread[at], grad_here, entropies, states.dtype)
            else:
                if logits is None:
                    logits = torch.log_softmax(logits_of(states_here, weight, factor, ctx.matmul), -1)
                d = _d_logits(logits, chosen[at], grad_here, entropies, spread[at])
                d = (d if factor == 1.0 else d.mul_(factor)).to(states.dtype)
            if d_states is not None:
                d_states[at] = d @ weight
            if ctx.needs_input_grad[1]:
                d_weight = _add_product(d_weight, d, states_here)
        return d_states, d_weight if d_weight is None else d_weight.to(weight.dtype), None, None, None, None


_head: Callable[[Tensor, Tensor, Tensor, float, bool, Matmul | None], tuple[Tensor, Tensor]] = _Head.apply


def _at_once(states: Tensor, logits: int, learns: bool) -> int:
    """How many logits are worked on at once. A large training pass keeps much more than a large chunk of them."""
    chunk = CHUNK[states.device.type]
    return max(chunk, min(QUARTER, logits // 4)) if states.is_cuda and learns else chunk


def _even(n: int, most: int) -> int:
    """The size of chunks of about one size, with no more than so many of n tokens in each."""
    chunks = max(1, -(-n // max(1, most)))
    return max(1, -(-n // chunks))


WORTH_IT = 0.85  # of the tokens: with more of them in it, a part costs as much as the whole


def _with_gradient(
    at: slice, logits: Tensor | None, grad: Tensor, more: Tensor | None
) -> tuple[slice | Tensor, Tensor | None]:
    """Those of a chunk's tokens whose outputs have a gradient, and their logits; the chunk where that is almost all."""
    loud = grad[at] != 0
    if more is not None:
        loud |= more[at] != 0
    some = loud.nonzero()[:, 0]
    if len(some) > WORTH_IT * len(loud):
        return at, logits
    return some + at.start, None if logits is None else logits[some]


def _fused(states: Tensor) -> LogProbKernels | None:
    """Kernels that make one pass over the logits; None where torch does it."""
    fast = kernels()
    return None if fast is None else fast.log_probs(states)


def _wide_empty(like: Tensor, n: int) -> Tensor:
    dtype = torch.float32 if like.dtype in (torch.bfloat16, torch.float16) else like.dtype
    return torch.empty(n, dtype=dtype, device=like.device)


def _d_logits(logs: Tensor, chosen: Tensor, grad: Tensor, grad_entropy: Tensor | None, spread: Tensor) -> Tensor:
    """d total / d logits, from log p (which it may overwrite)."""
    probs = logs.exp()
    if grad_entropy is None:
        d = probs.mul_(-grad[:, None])
    else:
        d = probs.mul_(logs.add_(spread[:, None]).mul_(-grad_entropy[:, None]).sub_(grad[:, None]))
    return d.scatter_add_(-1, chosen[:, None], grad[:, None].to(d.dtype))


def _add_product(total: Tensor | None, d: Tensor, states: Tensor) -> Tensor:
    """total + d^T states, in at least fp32."""
    if d.dtype in (torch.bfloat16, torch.float16) and d.is_cuda:
        more = torch.mm(d.t(), states, out_dtype=torch.float32)
    else:
        more = d.t() @ states
    return more if total is None else total.add_(more)
