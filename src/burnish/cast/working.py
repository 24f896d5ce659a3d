"""The weights that compute. On a CPU they are the model's own; on a GPU they are a bf16 copy of its fp32 weights.

Sampling and training run on the same copy, so there is nothing to synchronise between them. It is refreshed whenever
the fp32 weights have moved; gradients that it collects are added up in fp32 on the weights themselves.
"""

from __future__ import annotations

import copy

import torch
from torch import nn

from burnish.cast.forward import decoder
from burnish.cast.joint import join_projections

COMPILE_FROM = 30_000_000  # weights from which compiling the layers (seconds, once) pays off


class Working:
    """A model and its working copy (the model itself where none is needed)."""

    def __init__(self, model: nn.Module, frozen: bool) -> None:
        self.model = self.copy = model
        self.stamp = -1
        self.pairs: list[tuple[nn.Parameter, nn.Parameter]] = []
        if next(model.parameters()).device.type != "cuda":
            return
        if not frozen:
            self.copy = copy.deepcopy(model)
        for parameter in self.copy.parameters():
            parameter.data = parameter.data.to(torch.bfloat16)
        if not frozen:
            self.pairs = list(zip(model.parameters(), self.copy.parameters(), strict=True))
        join_projections(self.copy)
        if sum(p.numel() for p in model.parameters()) >= COMPILE_FROM:
            compile_layers(self.copy)

    def weights(self) -> nn.Module:
        """The model to compute with, up to date."""
        if self.pairs:
            stamp = sum(master._version for master, _ in self.pairs)  # every change in place counts one up
            if stamp != self.stamp:
                with torch.no_grad():
                    torch._foreach_copy_([ours for _, ours in self.pairs], [master for master, _ in self.pairs])
                self.stamp = stamp
        return self.copy

    @torch.no_grad()
    def collect(self) -> None:
        """Add the working copy's gradients to the model's, in fp32."""
        moved = [(master, ours) for master, ours in self.pairs if ours.grad is not None]
        if not moved:
            return
        fresh = [master.grad is None for master, _ in moved]
        grads = [torch.empty_like(master) for master, _ in moved]
        torch._foreach_copy_(grads, [ours.grad for _, ours in moved])  # type: ignore[misc]
        for (master, ours), grad, new in zip(moved, grads, fresh, strict=True):
            if new:
                master.grad = grad
            ours.grad = None
        if not all(fresh):
            old = [i for i, new in enumerate(fresh) if not new]
            torch._foreach_add_([moved[i][0].grad for i in old], [grads[i] for i in old])  # type: ignore[misc]


def layers(model: nn.Module) -> nn.ModuleList | None:
    """The decoder's layers, wherever it keeps them."""
    inner = decoder(model)
    count = inner.config.num_hidden_layers  # type: ignore[union-attr]
    return next((m for m in inner.modules() if isinstance(m, nn.ModuleList) and len(m) == count), None)


def compile_layers(model: nn.Module) -> None:
    """Compile each layer for any number of tokens. All layers share the code, so it takes as long as one."""
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    for layer in layers(model) or ():
        layer.compile(dynamic=True)
