"""AdamW whose moments are kept in 8 bits: 2 bytes a weight in place of 8 (after arXiv 2110.02861).

    m <- b1 m + (1 - b1) g;   v <- b2 v + (1 - b2) g^2;   w <- (1 - lr decay) w - lr (m / c1) / (sqrt(v / c2) + eps)

The arithmetic is fp32; between two steps a moment is kept in blocks of 256, each with its largest absolute value s:

    m = s sign(c) (c / 127)^2,  c in -127..127;      v = s (c / 255)^4,  c in 0..255

so that small numbers of a block have small errors, as the paper's tree of bits has it. Codes are rounded at random, up
or down, so that they are right on average: rounded to the nearest, v would never follow, since b2 = 0.999 changes it by
less than a code. The dice are thrown by step and tensor, so that a resumed run throws the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from burnish.seeds import key_of

BLOCK = 256  # numbers that share a scale
CHUNK = 1 << 24  # numbers of a tensor that are worked on at once


class AdamW8bit(Optimizer):
    """As torch's AdamW, with 8-bit moments. found_inf: nothing moves if it is 1."""

    def __init__(self, params: Any, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-8) -> None:
        self.found_inf: Tensor | None = None
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
            state |= fresh_state(p)
        state["step"] += 1
        count, (b1, b2), lr = int(state["step"]), group["betas"], group["lr"]
        dice = torch.Generator(p.device).manual_seed(key_of("adamw8bit", count, number) % 2**62)
        whole, grads = p.view(-1), p.grad.reshape(-1)  # type: ignore[union-attr]
        for at, blocks in chunks_of(p.numel()):
            g = grads[at].float()
            m = signed_values(state["m"][at], state["m_scale"][blocks])
            v = positive_values(state["v"][at], state["v_scale"][blocks])
            m.lerp_(g, 1 - b1)
            v.mul_(b2).addcmul_(g, g, value=1 - b2)
            root = (v / (1 - b2**count)).sqrt_().add_(group["eps"])
            whole[at].mul_(1 - lr * group["weight_decay"]).addcdiv_(m, root, value=-lr / (1 - b1**count))
            state["m"][at], state["m_scale"][blocks] = signed_codes(m, dice)
            state["v"][at], state["v_scale"][blocks] = positive_codes(v, dice)


def fresh_state(p: Tensor) -> dict[str, Tensor]:
    """The state of a parameter before its first step."""
    size, blocks = p.numel(), math.ceil(p.numel() / BLOCK)
    made = {"step": torch.zeros((), dtype=torch.int64)}
    for name, kind in (("m", torch.int8), ("v", torch.uint8)):
        made[name] = torch.zeros(size, dtype=kind, device=p.device)
        made[f"{name}_scale"] = torch.zeros(blocks, device=p.device)
    return made


def chunks_of(size: int) -> Iterator[tuple[slice, slice]]:
    """Runs of at most CHUNK numbers, and the blocks in which they stand."""
    for start in range(0, size, CHUNK):
        end = min(start + CHUNK, size)
        yield slice(start, end), slice(start // BLOCK, math.ceil(end / BLOCK))


def signed_values(codes: Tensor, scales: Tensor) -> Tensor:
    """s sign(c) (c / 127)^2"""
    x = codes.float() / 127
    return _in_blocks(x * x.abs()).mul_(scales[:, None]).view(-1)[: len(codes)]


def positive_values(codes: Tensor, scales: Tensor) -> Tensor:
    """s (c / 255)^4"""
    x = (codes.float() / 255).square_().square_()
    return _in_blocks(x).mul_(scales[:, None]).view(-1)[: len(codes)]


def signed_codes(x: Tensor, dice: torch.Generator) -> tuple[Tensor, Tensor]:
    """Codes of numbers, rounded at random, and the scales of their blocks."""
    share, scales = _shares(x)
    return _rounded(share.abs().sqrt_().mul_(share.sign()).mul_(127), 127, dice).to(torch.int8), scales


def positive_codes(x: Tensor, dice: torch.Generator) -> tuple[Tensor, Tensor]:
    share, scales = _shares(x)
    return _rounded(share.sqrt_().sqrt_().mul_(255), 255, dice, 4).to(torch.uint8), scales


def _shares(x: Tensor) -> tuple[Tensor, Tensor]:
    """Numbers as shares of the largest of their block, and that."""
    blocks = _in_blocks(x)
    scales = blocks.abs().amax(1)
    return (blocks / scales.clamp_min(torch.finfo(torch.float32).tiny)[:, None]).view(-1)[: len(x)], scales


def _rounded(x: Tensor, most: int, dice: torch.Generator, power: int = 2) -> Tensor:
    """Round to a neighbouring code, such that sign(c) |c|^power is right on average."""
    low = x.floor()
    high = low + 1
    values = [v.abs().pow(power).mul_(v.sign()) for v in (low, x, high)]
    chance = (values[1] - values[0]) / (values[2] - values[0])
    up = torch.rand(x.shape, generator=dice, device=x.device) < chance
    return torch.where(up, high, low).clamp_(-most, most)


def _in_blocks(x: Tensor) -> Tensor:
    """[blocks, BLOCK], the last one filled with zeros."""
    missing = -len(x) % BLOCK
    return (torch.nn.functional.pad(x, (0, missing)) if missing else x).view(-1, BLOCK)
