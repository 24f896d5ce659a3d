"""The tokens of a pass divided among the ranks of a group (`--context-ranks`): Ulysses attention (arXiv 2309.14509).

Everything in a decoder's layer but attention is about one token at a time. So rank c of C computes the layers for its
stretch of the N tokens, N / C of them. For attention the ranks exchange heads for tokens (all-to-all): each has all
tokens then, of 1 / C of the heads, and the layout that says which tokens see each other is the whole one, unchanged.
Afterwards they exchange back.

    layers       [N / C, H]                  of this rank's stretch
    attention    [N, heads / C, D]           of this rank's heads
    outputs      of 1 / C of the tokens that are asked about, from the last states of all (all-gather)

Every rank of a group has the outputs of all in the end, and so the same loss. Its gradients are of its own tokens, and
their sum over the ranks is the whole gradient. Heads of keys and values that C does not divide are repeated first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from burnish.core.types import Drawn
from burnish.forward.attention import Layout
from burnish.forward.autograd import Context
from burnish.forward.drawn import Temperature
from burnish.forward.packing import Packed
from burnish.forward.runner import TransformersRunner


class ContextGroup:
    """The ranks that divide the tokens of a pass. process_group: torch's."""

    def __init__(self, place: int, size: int, process_group: dist.ProcessGroup | None) -> None:
        self.place, self.size, self.process_group = place, size, process_group

    def exchange(self, x: Tensor) -> Tensor:
        """[C, ...]: part r goes to rank r, and part r of the result came from rank r."""
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        dist.all_to_all_single(out, x.contiguous(), group=self.process_group)
        return out

    def gather(self, x: Tensor) -> list[Tensor]:
        """The tensors of one shape that all ranks pass."""
        parts = [torch.empty_like(x) for _ in range(self.size)]
        dist.all_gather(parts, x.contiguous(), group=self.process_group)
        return parts

    def add_up(self, x: Tensor) -> Tensor:
        """The sum over the ranks, in place."""
        dist.all_reduce(x, group=self.process_group)
        return x

    def share(self, count: int) -> list[slice]:
        """The numbers, of so many, that each rank takes."""
        width = -(-count // self.size)
        return [slice(min(count, r * width), min(count, (r + 1) * width)) for r in range(self.size)]


class _GroupContext(Context, Protocol):
    group: ContextGroup
    count: int


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx: _GroupContext, x: Tensor, group: ContextGroup) -> Tensor:
        ctx.group = group
        return group.exchange(x)

    @staticmethod
    def backward(ctx: _GroupContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.group.exchange(grads[0]), None


class _AllStates(torch.autograd.Function):
    """[n, H] of each rank -> [C n, H] of all. Each rank uses some of them: gradients of all are summed."""

    @staticmethod
    def forward(ctx: _GroupContext, x: Tensor, group: ContextGroup) -> Tensor:
        ctx.group, ctx.count = group, len(x)
        return torch.cat(group.gather(x))

    @staticmethod
    def backward(ctx: _GroupContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        whole = ctx.group.add_up(grads[0].contiguous().clone())
        return whole[ctx.group.place * ctx.count :][: ctx.count], None


class _AllOutputs(torch.autograd.Function):
    """This rank's outputs, padded to [w, ...] -> [C, w, ...] of all. Every rank has the same loss of all of them."""

    @staticmethod
    def forward(ctx: _GroupContext, x: Tensor, group: ContextGroup) -> Tensor:
        ctx.group = group
        return torch.stack(group.gather(x))

    @staticmethod
    def backward(ctx: _GroupContext, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return grads[0][ctx.group.place], None


_exchanged: Callable[[Tensor, ContextGroup], Tensor] = _Exchange.apply
_all_states: Callable[[Tensor, ContextGroup], Tensor] = _AllStates.apply
_all_outputs: Callable[[Tensor, ContextGroup], Tensor] = _AllOutputs.apply


class HeadsForTokens:
    """A layout of all tokens, where each rank has a stretch of them. extra: tokens that only fill the last stretch."""

    def __init__(self, whole: Layout, group: ContextGroup, extra: int) -> None:
        self.whole, self.group, self.extra = whole, group, extra

    @property
    def packed(self) -> Packed | None:
        return self.whole.packed

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        """[1, n, heads, D] from queries, keys and values [1, heads, n, D] of this rank's stretch."""
        if k.shape[1] % self.group.size:
            k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
        q, k, v = (self._all_tokens(x) for x in (q, k, v))
        out = self.whole.attend(module, q, k, v, scale, window)[0]  # [N, heads / C, D]
        if self.extra:
            out = nn.functional.pad(out, (0, 0, 0, 0, 0, self.extra))
        tokens, heads, width = out.shape
        parts = _exchanged(out.reshape(self.group.size, tokens // self.group.size, heads, width), self.group)
        return parts.transpose(0, 1).reshape(1, tokens // self.group.size, self.group.size * heads, width)

    def _all_tokens(self, x: Tensor) -> Tensor:
        """[1, heads / C, N, D] from [1, heads, n, D]."""
        _, heads, tokens, width = x.shape
        parts = _exchanged(x[0].reshape(self.group.size, heads // self.group.size, tokens, width), self.group)
        whole = parts.transpose(0, 1).reshape(1, heads // self.group.size, self.group.size * tokens, width)
        return whole[:, :, : whole.shape[2] - self.extra]


class ContextRunner(TransformersRunner):
    """Any model of transformers; inside `dividing` a rank computes its stretch of the tokens of a pack."""

    def __init__(self, module: nn.Module, group: ContextGroup) -> None:
        super().__init__(module)
        self.group = group
        self._divides = False

    @contextmanager
    def dividing(self) -> Iterator[None]:
        """Inside, all ranks of the group make the same passes, and divide the tokens of each."""
        self._divides = True
        try:
            yield
        finally:
            self._divides = False

    def hidden(self, given: Tensor, positions: Tensor, layout: Layout) -> Tensor:
        if not self._divides:
            return super().hidden(given, positions, layout)
        count = positions.shape[1]
        extra = -count % self.group.size
        own = slice(self.group.place * (count + extra) // self.group.size, None)
        width = (count + extra) // self.group.size
        given, positions = (_filled(x, extra)[:, own][:, :width] for x in (given, positions))
        states = super().hidden(given, positions, HeadsForTokens(layout, self.group, extra))
        return _all_states(states[0], self.group)[None, :count]

    def mine(self, count: int) -> slice:
        """Which of the tokens that are asked about this rank looks at."""
        return self.group.share(count)[self.group.place]

    def joined(self, own: dict[str, Tensor], count: int) -> dict[str, Tensor]:
        """The outputs of all ranks, from those of this one."""
        shares = self.group.share(count)
        width = shares[0].stop
        whole: dict[str, Tensor] = {}
        for name in sorted(own):
            x = own[name]
            padded = torch.cat([x, x.new_zeros(width - len(x), *x.shape[1:])])
            parts = _all_outputs(padded, self.group)
            whole[name] = torch.cat([part[: s.stop - s.start] for part, s in zip(parts, shares, strict=True)])
        return whole


def _filled(x: Tensor, extra: int) -> Tensor:
    """[1, N + extra, ...]: with zeros behind."""
    return torch.cat([x, x.new_zeros(1, extra, *x.shape[2:])], dim=1) if extra else x


def drawn_some(drawn: Drawn | Temperature, which: slice) -> Drawn | Temperature:
    """How some of the tokens were drawn."""
    if not isinstance(drawn, Drawn):
        return drawn[which] if isinstance(drawn, np.ndarray) else drawn
    heat = drawn.temperature
    return replace(
        drawn,
        temperature=heat[which] if isinstance(heat, np.ndarray) else heat,
        penalty=None if drawn.penalty is None else drawn.penalty[which],
        allowed=None if drawn.allowed is None else drawn.allowed[which],
    )
