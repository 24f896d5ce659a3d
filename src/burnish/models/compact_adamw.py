"""AdamW whose moments and weights may be kept in fewer bits between two steps; the arithmetic of a step is fp32.

    m <- b1 m + (1 - b1) g;   v <- b2 v + (1 - b2) g^2;   w <- (1 - lr decay) w - lr (m / c1) / (sqrt(v / c2) + eps)

Moments: fp32, bf16, or codes of 8 bits (models/adamw8bit.py). Weights (`--master-weights`):

    float32    the parameter itself is fp32: 4 bytes, and 2 more for the bf16 copy that computes on a GPU
    split      fp32 in two halves: the parameter is the number rounded to bf16, and an int16 says how far it is off, in
               units of the last place of fp32. 4 bytes, no copy, and no bit is lost: a Kahan sum whose compensation is
               exact (the use of both for bf16 training: arXiv 2010.06192)
    bfloat16   the parameter alone, with stochastic rounding after each step (up or down at random, right on average):
               2 bytes. To the nearest, a step of less than 1/256 of a weight would be lost

The dice are thrown by step and tensor, so that a resumed run throws the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

from burnish.core.seeds import key_of

CHUNK = 1 << 24  # numbers of a tensor that are worked on at once

State = dict[str, Tensor]
Part = slice  # of a flat tensor


class Moments(Protocol):
    """How both moments of a parameter are kept between two steps."""

    def fresh(self, p: Tensor) -> State: ...

    def read(self, state: State, at: Part) -> tuple[Tensor, Tensor]: ...

    def write(self, state: State, at: Part, m: Tensor, v: Tensor, dice: torch.Generator) -> None: ...


class Weights(Protocol):
    """How a parameter is kept between two steps. flat: the parameter's own numbers; state: what is kept beside it."""

    def fresh(self, p: Tensor) -> State: ...

    def read(self, flat: Tensor, state: State, at: Part) -> Tensor: ...

    def write(self, flat: Tensor, state: State, at: Part, w: Tensor, dice: torch.Generator) -> None: ...


class CompactAdamW(Optimizer):
    """As torch's AdamW. found_inf: nothing moves if it is 1."""

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        moments: Moments,
        weights: Weights,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        self.found_inf: Tensor | None = None
        self.moments, self.weights = moments, weights
        super().__init__(params, {"lr": 0.0, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        if self.found_inf is not None and bool(self.found_inf):
            return None
        number = 0
        for group in self.param_groups:
            for p in group["params"]:
                number += 1
                if p.grad is not None:
                    self._move(p, group, number)
        return None

    def _move(self, p: Tensor, group: dict[str, Any], number: int) -> None:
        state = self.state[p]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.int64)
            state |= self.moments.fresh(p) | self.weights.fresh(p)
        state["step"] += 1
        count, (b1, b2), lr = int(state["step"]), group["betas"], group["lr"]
        dice = torch.Generator(p.device).manual_seed(key_of("adamw8bit", count, number) % 2**62)
        flat, grads = p.view(-1), p.grad.reshape(-1)  # type: ignore[union-attr]
        for at in parts_of(p.numel()):
            g = grads[at].float()
            m, v = self.moments.read(state, at)
            m.lerp_(g, 1 - b1)
            v.mul_(b2).addcmul_(g, g, value=1 - b2)
            root = (v / (1 - b2**count)).sqrt_().add_(group["eps"])
            w = self.weights.read(flat, state, at)
            w.mul_(1 - lr * group["weight_decay"]).addcdiv_(m, root, value=-lr / (1 - b1**count))
            self.moments.write(state, at, m, v, dice)
            self.weights.write(flat, state, at, w, dice)


def parts_of(size: int) -> Iterator[Part]:
    """Runs of at most CHUNK numbers."""
    for start in range(0, size, CHUNK):
        yield slice(start, min(start + CHUNK, size))


class FloatMoments:
    """Moments in fp32, or in bf16 with stochastic rounding."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def fresh(self, p: Tensor) -> State:
        return {name: torch.zeros(p.numel(), dtype=self.dtype, device=p.device) for name in ("m", "v")}

    def read(self, state: State, at: Part) -> tuple[Tensor, Tensor]:
        return state["m"][at].float(), state["v"][at].float()

    def write(self, state: State, at: Part, m: Tensor, v: Tensor, dice: torch.Generator) -> None:
        for name, x in (("m", m), ("v", v)):
            state[name][at] = x if self.dtype == torch.float32 else rounded(x, dice)


class FloatWeights:
    """fp32 weights, which are changed in place."""

    def fresh(self, p: Tensor) -> State:
        return {}

    def read(self, flat: Tensor, state: State, at: Part) -> Tensor:
        return flat[at]

    def write(self, flat: Tensor, state: State, at: Part, w: Tensor, dice: torch.Generator) -> None:
        """`w` is the parameter itself."""


class SplitWeights:
    """bf16 weights, and in the state how far each is from the fp32 number."""

    def fresh(self, p: Tensor) -> State:
        return {"low": torch.zeros(p.numel(), dtype=torch.int16, device=p.device)}

    def read(self, flat: Tensor, state: State, at: Part) -> Tensor:
        return joined_halves(flat[at], state["low"][at])

    def write(self, flat: Tensor, state: State, at: Part, w: Tensor, dice: torch.Generator) -> None:
        flat[at], state["low"][at] = halves(w)


class RoundedWeights:
    """bf16 weights alone, with stochastic rounding."""

    def fresh(self, p: Tensor) -> State:
        return {}

    def read(self, flat: Tensor, state: State, at: Part) -> Tensor:
        return flat[at].float()

    def write(self, flat: Tensor, state: State, at: Part, w: Tensor, dice: torch.Generator) -> None:
        flat[at] = rounded(w, dice)


def rounded(x: Tensor, dice: torch.Generator) -> Tensor:
    """x in bf16 by stochastic rounding: a random number below one bf16 place is added, then the rest is cut off, which
    is x on average."""
    more = torch.randint(1 << 16, x.shape, generator=dice, device=x.device, dtype=torch.int32)
    return (x.contiguous().view(torch.int32) + more).bitwise_right_shift_(16).to(torch.int16).view(torch.bfloat16)


def halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """fp32 as bf16, rounded to the nearest (a tie away from 0), and the difference of the bits, which fits an int16."""
    bits = x.contiguous().view(torch.int32)
    high = (bits + (1 << 15)).bitwise_right_shift_(16)
    low = bits - (high << 16)
    return high.to(torch.int16).view(torch.bfloat16), low.to(torch.int16)


def joined_halves(high: Tensor, low: Tensor) -> Tensor:
    """The fp32 numbers of both halves."""
    return ((high.contiguous().view(torch.int16).int() << 16) + low.int()).view(torch.float32)
