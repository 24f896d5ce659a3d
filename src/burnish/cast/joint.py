"""Projections that read the same input, done as one product: queries, keys and values; gate and up.

Small products cost a kernel's launch more than their arithmetic. The weights stay parameters of their own.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # in the order in which layers call them


class Joint:
    """What the projections of one module share: their weights side by side, and the outputs not yet asked for."""

    def __init__(self, parts: list[nn.Linear]) -> None:
        self.parts = parts
        self.sizes = [part.out_features for part in parts]
        self.outputs: tuple[Tensor, ...] = ()
        self.weight = torch.cat([part.weight.data for part in parts])
        self.bias = torch.cat([part.bias.data for part in parts]) if parts[0].bias is not None else None
        for part, weight in zip(parts, self.weight.split(self.sizes), strict=True):
            part.weight.data = weight  # a view: what refreshes the parameter refreshes the whole
        for part, bias in zip(parts, self.bias.split(self.sizes), strict=True) if self.bias is not None else ():
            part.bias.data = bias

    def project(self, x: Tensor) -> Tensor:
        """The first part's output; the others wait until they are asked for."""
        if torch.is_grad_enabled():  # with gradients the joining of theirs would cost more than it saves
            self.outputs = tuple(nn.functional.linear(x, part.weight, part.bias) for part in self.parts)
        else:
            self.outputs = nn.functional.linear(x, self.weight, self.bias).split(self.sizes, dim=-1)
        return self.outputs[0]

    def give(self, i: int) -> Tensor:
        """Output number i; nothing is held once the last one was given."""
        found = self.outputs[i]
        if i == len(self.sizes) - 1:
            self.outputs = ()
        return found


class First(nn.Module):
    """The projection that is called first does all of them."""

    def __init__(self, joint: Joint, part: nn.Linear) -> None:
        super().__init__()
        self.joint, self.weight, self.bias = joint, part.weight, part.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.joint.project(x)


class Later(nn.Module):
    """A projection whose output is already there."""

    def __init__(self, joint: Joint, part: nn.Linear, i: int) -> None:
        super().__init__()
        self.joint, self.weight, self.bias, self.i = joint, part.weight, part.bias, i

    def forward(self, x: Tensor) -> Tensor:
        return self.joint.give(self.i)


def join_projections(model: nn.Module) -> None:
    """Join what can be joined: plain linear maps of one input, all with or all without a bias."""
    for module in list(model.modules()):
        for names in TOGETHER:
            parts = [getattr(module, name, None) for name in names]
            plain = all(type(part) is nn.Linear for part in parts)
            if not plain or len({(p.in_features, p.bias is None) for p in parts}) != 1:  # type: ignore[union-attr]
                continue
            joint = Joint(parts)  # type: ignore[arg-type]
            for i, (name, part) in enumerate(zip(names, parts, strict=True)):
                setattr(module, name, Later(joint, part, i) if i else First(joint, part))  # type: ignore[arg-type]
