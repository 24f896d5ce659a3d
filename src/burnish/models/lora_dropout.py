"""Dropout of LoRA inputs, drawn once for a step.

peft draws a mask for every token. Here a step has one mask for each adapter: x_j / (1 - p) for the inputs j that are
kept, the same ones for all tokens. So micro-batching, packing and the order of rows cannot change the gradient, and a
rerun repeats it. The mask is a hash of seed, step, pass and layer. Sampling and evaluation use no dropout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from burnish.core import randomness


class UpdateDropout(nn.Module):
    """x times `mask`, which is there during the updates of a step; x where there is none. p: the share left out."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p
        self.mask: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        return x if self.mask is None else x * self.mask.to(x.dtype)


@contextmanager
def dropping(module: nn.Module, *what: object) -> Iterator[None]:
    """Inside, the adapters of a model drop inputs, by masks that belong to `what`."""
    dropouts = [(name, layer, *one) for name, layer in module.named_modules() for one in _dropouts(layer)]
    before = [layer.training for _, layer, _, _ in dropouts]
    for name, layer, dropout, matrix in dropouts:
        key = torch.tensor(randomness.key_of("lora dropout", *what, name))
        inputs = randomness.uniform(key, torch.arange(matrix.in_features)) >= dropout.p
        dropout.mask = (inputs.float() / (1 - dropout.p)).to(matrix.weight.device)
        layer.training = True  # DoRA's layer asks for it
    try:
        yield
    finally:
        for (_, layer, dropout, _), was in zip(dropouts, before, strict=True):
            dropout.mask, layer.training = None, was


def _dropouts(layer: Any) -> list[tuple[UpdateDropout, nn.Linear]]:
    """The dropouts of an adapted layer, each with the matrix A that it stands before."""
    named = dict(getattr(layer, "lora_dropout", None) or {})
    return [(one, layer.lora_A[name]) for name, one in named.items() if isinstance(one, UpdateDropout)]
