"""Moments of AdamW in 8 bits: 2 bytes a weight in place of 8 (after arXiv 2110.02861).

A moment is kept in blocks of 256 numbers, each block with its largest absolute value s:

    m = s sign(c) (c / 127)^2,  c in -127..127;      v = s (c / 255)^4,  c in 0..255

so that small numbers of a block have small errors, as the paper's tree of bits has it. Codes are rounded
stochastically, up or down at random, so that they are right on average: rounded to the nearest, v would never follow,
since b2 = 0.999 changes it by less than a code.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from burnish.models.compact_adamw import Part, State

BLOCK = 256  # numbers that share a scale


class EightBitMoments:
    """m in codes of -127..127 and v in codes of 0..255, with a scale for each block."""

    def fresh(self, p: Tensor) -> State:
        size, blocks = p.numel(), math.ceil(p.numel() / BLOCK)
        made: State = {}
        for name, kind in (("m", torch.int8), ("v", torch.uint8)):
            made[name] = torch.zeros(size, dtype=kind, device=p.device)
            made[f"{name}_scale"] = torch.zeros(blocks, device=p.device)
        return made

    def read(self, state: State, at: Part) -> tuple[Tensor, Tensor]:
        blocks = _blocks(at)
        m = signed_values(state["m"][at], state["m_scale"][blocks])
        return m, positive_values(state["v"][at], state["v_scale"][blocks])

    def write(self, state: State, at: Part, m: Tensor, v: Tensor, dice: torch.Generator) -> None:
        blocks = _blocks(at)
        state["m"][at], state["m_scale"][blocks] = signed_codes(m, dice)
        state["v"][at], state["v_scale"][blocks] = positive_codes(v, dice)


def _blocks(at: Part) -> Part:
    """The blocks in which the numbers of a part stand."""
    return slice(at.start // BLOCK, math.ceil(at.stop / BLOCK))


def signed_values(codes: Tensor, scales: Tensor) -> Tensor:
    """s sign(c) (c / 127)^2"""
    x = codes.float() / 127
    return _in_blocks(x * x.abs()).mul_(scales[:, None]).view(-1)[: len(codes)]


def positive_values(codes: Tensor, scales: Tensor) -> Tensor:
    """s (c / 255)^4"""
    x = (codes.float() / 255).square_().square_()
    return _in_blocks(x).mul_(scales[:, None]).view(-1)[: len(codes)]


def signed_codes(x: Tensor, dice: torch.Generator) -> tuple[Tensor, Tensor]:
    """Codes of numbers, by stochastic rounding, and the scales of their blocks."""
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
