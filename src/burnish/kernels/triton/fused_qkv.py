"""Projections that read the same input, done as one product: queries, keys and values; gate and up.

Small products cost a kernel's launch more than their arithmetic. The weights stay parameters of their own. Under LoRA
the frozen weights below the adapters are joined, and get as many rows to spare behind them as the adapters have ranks
(`whole`): with the adapters' matrices A there, a decode step's product is x W^T and x A^T at once. Where models share
frozen weights, the first one has the spare rows.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from burnish.forward.nf4 import Nf4, Nf4Linear, nf4_linear
from burnish.kernels.lora import NotPlain, base_of, plain_adapter

TOGETHER = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))  # in the order in which layers call them
ALONE = ("o_proj", "down_proj")  # the other projections of a layer


class Joint:
    """What the projections of one module share: their weights side by side, and the outputs not yet asked for.

    Gradients are taken of the whole; the parts' own parameters are views of it.

    whole  the weights with spare rows behind them; None: there are none
    """

    def __init__(self, parts: list[nn.Linear], spare: int = 0) -> None:
        self.parts = parts
        self.sizes = [part.out_features for part in parts]
        self.outputs: tuple[Tensor, ...] = ()
        self.whole = _with_spare([cast(nn.Parameter, part.weight) for part in parts], spare)
        self.weight: nn.Parameter | Nf4 = _together(parts)
        biases = [part.bias for part in parts if part.bias is not None]
        self.bias = _side_by_side(biases) if biases else None

    def project(self, x: Tensor) -> Tensor:
        """The first part's output; the others wait until they are asked for."""
        if isinstance(self.weight, Nf4):
            made = nf4_linear(x, self.weight, self.bias)
        else:
            made = nn.functional.linear(x, self.weight, self.bias)
        self.outputs = made.split(self.sizes, dim=-1)
        return self.outputs[0]

    def give(self, i: int) -> Tensor:
        """Output number i; nothing is held once the last one was given."""
        found = self.outputs[i]
        if i == len(self.sizes) - 1:
            self.outputs = ()
        return found

    def leaves(self) -> list[tuple[nn.Parameter, list[nn.Parameter]]]:
        """What gradients are taken of, each with the parameters that are its views."""
        if isinstance(self.weight, Nf4):  # frozen
            return []
        found: list[tuple[nn.Parameter, list[nn.Parameter]]] = [
            (self.weight, [cast(nn.Parameter, part.weight) for part in self.parts])
        ]
        if self.bias is not None:
            found.append((self.bias, [part.bias for part in self.parts]))
        return found


def _together(parts: list[nn.Linear]) -> nn.Parameter | Nf4:
    """The weights of all parts."""
    whole = _side_by_side([cast(nn.Parameter, part.weight) for part in parts])
    scales = [part.scales for part in parts if isinstance(part, Nf4Linear)]
    return Nf4(whole, _side_by_side(scales)) if scales else whole


def _side_by_side(parts: list[nn.Parameter]) -> nn.Parameter:
    """One parameter of all; what refreshes a part refreshes the whole.

    Parts that lie side by side already, because another model that shares them has joined them, stay where they are.
    """
    trained = parts[0].requires_grad
    if (whole_data := _joined_before(parts)) is not None:
        return nn.Parameter(whole_data, requires_grad=trained)
    whole = nn.Parameter(torch.cat([part.data for part in parts]), requires_grad=trained)
    for part, view in zip(parts, whole.data.split([len(part) for part in parts]), strict=True):
        part.data = view
    return whole


def _joined_before(parts: list[nn.Parameter]) -> Tensor | None:
    """The tensor of all parts, if they follow each other in one memory; else None."""
    first, place = parts[0].data, parts[0].data.data_ptr()
    if first.untyped_storage().nbytes() < sum(part.numel() for part in parts) * first.element_size():
        return None
    for part in parts:
        if part.data_ptr() != place or not part.is_contiguous() or part.dtype != first.dtype:
            return None
        place += part.numel() * part.element_size()
    rows = sum(len(part) for part in parts)
    return first.as_strided((rows, *first.shape[1:]), first.stride())


def _with_spare(parts: list[nn.Parameter], spare: int) -> Tensor | None:
    """Parts side by side with so many rows to spare behind them; None where another model has done it before."""
    first = parts[0].data
    longer = first.untyped_storage().nbytes() > first.numel() * first.element_size()
    if not spare or (longer if len(parts) == 1 else _joined_before(parts) is not None):
        return None
    whole = first.new_zeros(sum(len(part) for part in parts) + spare, first.shape[1])
    for part, view in zip(parts, whole.split([*(len(part) for part in parts), spare])[:-1], strict=True):
        view.copy_(part.data)
        part.data = view
    return whole


def _ranks(projections: list[Any]) -> int:
    """The ranks of the adapters of frozen, dense projections together."""
    if any(type(base_of(one)) is not nn.Linear or base_of(one).weight.requires_grad for one in projections):
        return 0
    try:
        found = [plain_adapter(one) for one in projections]
    except NotPlain:
        return 0
    return sum(len(one[0]) for one in found if one is not None)


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


def join_projections(model: nn.Module) -> list[Joint]:
    """Join what can be joined: plain linear maps of one input, all with or all without a bias, all trained or none."""
    found = []
    for module in list(model.modules()):
        for names in TOGETHER:
            parts: list[Any] = [base_of(getattr(module, name, None)) for name in names]
            plain = len({type(part) for part in parts}) == 1 and type(parts[0]) in (nn.Linear, Nf4Linear)
            if not plain or len({(p.in_features, p.bias is None, p.weight.requires_grad) for p in parts}) != 1:
                continue
            joint = Joint(parts, _ranks([getattr(module, name) for name in names]))
            found.append(joint)
            for i, (name, part) in enumerate(zip(names, parts, strict=True)):
                projection: Any = getattr(module, name)
                adapted = projection is not part
                made = Later(joint, part, i) if i else First(joint, part)
                setattr(projection if adapted else module, "base_layer" if adapted else name, made)
        for name in ALONE:
            projection = getattr(module, name, None)
            if hasattr(projection, "lora_A"):
                base = base_of(projection)
                base.whole = _with_spare([base.weight], _ranks([projection]))
    return found
