"""LoRA adapters as a short vector: the singular values of their factors, which alone move."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


def factors_of(module: nn.Module) -> dict[str, nn.Parameter]:
    """The factors A and B of every adapter, by name; empty where the model has no adapters."""
    return {name: p for name, p in module.named_parameters() if ".lora_A." in name or ".lora_B." in name}


class SingularValues:
    """The map from a vector x [size] to adapters, around those of the start (ESSA, arXiv 2507.04453).

        M(x) = M_0 + U_k diag(scale x_M) V_k^T,   M_0 = U diag(s) V^T, for each factor M (A or B of an adapter)

    k is the number of largest singular values that are kept, ceil(share rank) of each factor; U and V stay. scale is
    the mean of the kept values of the factor, so that x counts in multiples of them. A factor of zeros, as the B of
    fresh adapters is, takes the scale of its partner. x = 0 gives the start bit for bit.
    """

    def __init__(self, start: Mapping[str, Tensor], share: float) -> None:
        self.start = {name: factor.detach().clone() for name, factor in start.items()}
        self.parts: list[tuple[str, Tensor, Tensor]] = []  # name, U_k scale, V_k^T
        kept = {name: _largest(factor, share) for name, factor in self.start.items()}
        for name, (u, s, v) in kept.items():
            scale = float(s.mean()) or float(kept.get(_partner(name), (u, s, v))[1].mean())
            factor = self.start[name]
            left, right = (part.to(factor.device, torch.float32) for part in (u * scale, v))
            self.parts.append((name, left.contiguous(), right.contiguous()))
        self.size = sum(v.shape[0] for _, _, v in self.parts)

    @torch.no_grad()
    def write(self, x: NDArray[np.float64], module: nn.Module) -> None:
        """Set the adapters of a model to those of x."""
        place, begin = factors_of(module), 0
        for name, left, right in self.parts:
            mine = torch.from_numpy(x[begin : begin + right.shape[0]]).to(left)
            place[name].copy_(self.start[name] + ((left * mine) @ right).to(self.start[name].dtype))
            begin += right.shape[0]


def _largest(factor: Tensor, share: float) -> tuple[Tensor, Tensor, Tensor]:
    """U [m, k], s [k], V^T [k, n] of the largest singular values, in fp64 on the CPU."""
    u, s, v = torch.linalg.svd(factor.detach().cpu().double(), full_matrices=False)
    k = math.ceil(share * len(s))
    return u[:, :k], s[:k], v[:k]


def _partner(name: str) -> str:
    """The other factor of the same adapter."""
    return name.replace(".lora_B.", ".lora_A.") if ".lora_B." in name else name.replace(".lora_A.", ".lora_B.")
