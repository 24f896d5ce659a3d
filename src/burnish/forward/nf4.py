"""NF4: frozen weights in four bits, for QLoRA (arXiv 2305.14314).

    w ~ scale_b code_i        b: the block of 64 weights of one row in which w stands;  scale_b = max |w| of the block

code_i is the nearest of 16 values between -1 and 1: quantiles of a normal distribution, of which one is exactly 0. Two
codes share a byte, and a scale is fp16: 4.25 bits a weight. The paper quantises the scales again, to 4.13 bits in all;
here they stay as they are.

`Nf4Linear` computes with the weights as they were before, in the type of its input: they are made dense for one product
and forgotten, in the forward pass and again in the backward pass. Sampler and trainer read the same codes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import torch
from torch import Tensor, nn

from burnish.forward.accelerate import kernels
from burnish.forward.autograd import Context

BLOCK = 64  # weights that share a scale
CODES = (  # the values of the paper's appendix E
    -1.0,
    -0.6961928009986877,
    -0.5250730514526367,
    -0.39491748809814453,
    -0.28444138169288635,
    -0.18477343022823334,
    -0.09105003625154495,
    0.0,
    0.07958029955625534,
    0.16093020141124725,
    0.24611230194568634,
    0.33791524171829224,
    0.44070982933044434,
    0.5626170039176941,
    0.7229568362236023,
    1.0,
)


@cache
def codes_on(device: torch.device) -> Tensor:
    """[16]: the values of the codes, in fp32."""
    return torch.tensor(CODES, device=device)


@dataclass(frozen=True)
class Nf4:
    """A matrix [rows, columns] in four bits.

    packed  [rows, columns / 2] uint8: the codes of two neighbours, the first in the upper half
    scales  [rows, columns / 64] int16: the bits of fp16 numbers, so that nothing that converts weights touches them
    """

    packed: Tensor
    scales: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> Nf4:
        """Quantise a matrix whose rows are whole blocks."""
        rows, columns = weight.shape
        blocks = weight.detach().float().view(rows, columns // BLOCK, BLOCK)
        scales = blocks.abs().amax(-1).to(torch.float16)
        whole = scales.float().clamp_min(torch.finfo(torch.float16).tiny)[..., None]
        table = codes_on(weight.device)
        codes = torch.bucketize(blocks / whole, (table[1:] + table[:-1]) / 2).to(torch.uint8).view(rows, columns)
        return cls(codes[:, ::2] << 4 | codes[:, 1::2], scales.view(torch.int16))

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.packed), 2 * self.packed.shape[1]

    def dense(self, dtype: torch.dtype, out: Tensor | None = None) -> Tensor:
        """The weights as they are computed with. out: where to write them."""
        rows, columns = self.shape
        made = torch.empty(rows, columns, dtype=dtype, device=self.packed.device) if out is None else out
        fast = kernels() if self.packed.is_cuda else None
        scales = self.scales.view(torch.float16)
        if fast is not None:
            fast.nf4_dense(self.packed, scales, made)
            return made
        table = codes_on(self.packed.device)
        values = torch.stack([table[(self.packed >> 4).long()], table[(self.packed & 15).long()]], -1)
        return made.copy_((values.view(rows, -1, BLOCK) * scales.float()[..., None]).view(rows, columns))


class Nf4Linear(nn.Linear):
    """A linear map with frozen weights in four bits. `weight` holds the packed codes, as peft expects a weight."""

    def __init__(self, quantised: Nf4, bias: Tensor | None) -> None:
        rows, columns = quantised.shape
        super().__init__(columns, rows, bias=bias is not None, device="meta")
        self.weight = nn.Parameter(quantised.packed, requires_grad=False)
        self.scales = nn.Parameter(quantised.scales, requires_grad=False)
        if bias is not None:
            self.bias = nn.Parameter(bias.detach(), requires_grad=False)

    @property
    def held(self) -> Nf4:
        return Nf4(self.weight, self.scales)

    def forward(self, x: Tensor) -> Tensor:
        return nf4_linear(x, self.held, self.bias)


def nf4_linear(x: Tensor, weight: Nf4, bias: Tensor | None) -> Tensor:
    """x W^T + bias, with a gradient for x only."""
    product = _linear(x, weight)
    return product if bias is None else product + bias


class _Nf4Context(Context, Protocol):
    held: Nf4


class _Linear(torch.autograd.Function):
    """Dense weights live for one product; autograd would keep those of every layer."""

    @staticmethod
    def forward(ctx: _Nf4Context, x: Tensor, weight: Nf4) -> Tensor:
        ctx.held = weight
        return nn.functional.linear(x, weight.dense(x.dtype))

    @staticmethod
    def backward(ctx: _Nf4Context, *grads: Tensor) -> tuple[Tensor, None]:
        return grads[0] @ ctx.held.dense(grads[0].dtype), None


_linear: Callable[[Tensor, Nf4], Tensor] = _Linear.apply


def quantise_linears(module: nn.Module, device: torch.device) -> int:
    """Replace the linear maps of a model by four-bit ones on a device, one after the other; how many there were.

    The head, routers of experts and matrices whose rows are not whole blocks stay as they are.
    """
    head = getattr(module, "get_output_embeddings", lambda: None)()
    count = 0
    for owner in list(module.modules()):
        for name, part in list(owner.named_children()):
            if type(part) is not nn.Linear or part is head or name in ("gate", "router", "score"):
                continue
            if part.in_features % BLOCK:
                continue
            bias = None if part.bias is None else part.bias.to(device)
            setattr(owner, name, Nf4Linear(Nf4.of(part.weight.to(device)), bias))
            count += 1
    return count


def make_dense(module: nn.Module, dtype: torch.dtype) -> None:
    """Put plain linear maps back in the place of four-bit ones, for merging adapters into them."""
    for owner in list(module.modules()):
        for name, part in list(owner.named_children()):
            if isinstance(part, Nf4Linear):
                plain = nn.Linear(part.in_features, part.out_features, bias=part.bias is not None, device="meta")
                plain.weight = nn.Parameter(part.held.dense(dtype), requires_grad=False)
                if part.bias is not None:
                    plain.bias = nn.Parameter(part.bias.detach().to(dtype), requires_grad=False)
                setattr(owner, name, plain)
