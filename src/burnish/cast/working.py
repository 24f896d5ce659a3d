"""The weights that compute. On a CPU they are the model's own; on a GPU they are a bf16 copy of its fp32 weights.

Sampling and training run on the same copy, so there is nothing to synchronise between them. It is refreshed whenever
the fp32 weights have moved; gradients that it collects are added up in fp32 on the weights themselves.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from burnish.cast.forward import decoder
from burnish.cast.fused import Fused
from burnish.cast.joint import join_projections
from burnish.cast.packing import on_gpu
from burnish.cast.recorded import Recorder

COMPILE_FROM = 30_000_000  # weights from which compiling the layers (seconds, once) pays off


class Working:
    """A model and its working copy (the model itself where none is needed)."""

    def __init__(self, model: nn.Module, frozen: bool, exact: bool = False) -> None:
        self.model = self.copy = model
        self.stamp = -1
        self.pairs: list[tuple[nn.Parameter, nn.Parameter]] = []
        self.leaves: list[tuple[nn.Parameter, list[nn.Parameter]]] = []  # of the copy, and whose gradients theirs are
        # fp32 gradients that stay where they are, for recorded passes
        self.sums: list[tuple[nn.Parameter, Tensor]] = []
        if not on_gpu(next(model.parameters()).device):
            return
        if not frozen:
            self.copy = copy.deepcopy(model)
        for parameter in self.copy.parameters():
            parameter.data = parameter.data.to(torch.bfloat16)
        if not frozen:
            self.pairs = list(zip(model.parameters(), self.copy.parameters(), strict=True))
        joints = join_projections(self.copy)
        if not frozen:
            self._find_leaves([leaf for joint in joints for leaf in joint.leaves()])
            self.copy.recorder = Recorder(self.copy, self)  # type: ignore[assignment]
        fused = Fused.of(decoder(self.copy))
        if fused is not None and fused.reads:
            fused.exact = exact
            self.copy.fused = fused  # type: ignore[assignment]
        elif sum(p.numel() for p in model.parameters()) >= COMPILE_FROM:
            compile_layers(self.copy)

    def _find_leaves(self, joint: list[tuple[nn.Parameter, list[nn.Parameter]]]) -> None:
        """What gradients are taken of: joined weights, and every other parameter that is trained."""
        master = {ours: theirs for theirs, ours in self.pairs}
        views = {part for _, parts in joint for part in parts}
        alone = [(ours, [theirs]) for theirs, ours in self.pairs if ours not in views]
        together = [(whole, [master[part] for part in parts]) for whole, parts in joint]
        self.leaves = [(leaf, masters) for leaf, masters in (*alone, *together) if leaf.requires_grad]

    def weights(self) -> nn.Module:
        """The model to compute with, up to date."""
        if self.pairs:
            masters: list[Tensor] = [master for master, _ in self.pairs]
            stamp = sum([master._version for master in masters])  # every change in place counts one up
            if stamp != self.stamp:
                with torch.no_grad():
                    torch._foreach_copy_([ours for _, ours in self.pairs], masters)
                self.stamp = stamp
        return self.copy

    @torch.no_grad()
    def collect(self) -> None:
        """Add the working copy's gradients to the model's, in fp32."""
        moved = [(leaf, masters) for leaf, masters in self.leaves if leaf.grad is not None]
        if moved:
            self.add([leaf.grad for leaf, _ in moved], [masters for _, masters in moved])  # type: ignore[misc]
        for leaf, _ in moved:
            leaf.grad = None

    @torch.no_grad()
    def add(self, grads: list[Tensor], of: list[list[nn.Parameter]]) -> None:
        """Add bf16 gradients to those of the model's parameters that each is of, side by side."""
        masters = [master for some in of for master in some]
        parts = [part for grad, some in zip(grads, of, strict=True) for part in grad.split([len(m) for m in some])]
        fresh = [i for i, master in enumerate(masters) if master.grad is None]
        old = [i for i, master in enumerate(masters) if master.grad is not None]
        for i in fresh:
            masters[i].grad = torch.empty_like(masters[i])
        if fresh:
            torch._foreach_copy_([masters[i].grad for i in fresh], [parts[i] for i in fresh])  # type: ignore[misc]
        if old:
            sums = [masters[i].grad for i in old]
            more = [torch.empty_like(total) for total in sums]  # type: ignore[arg-type]
            torch._foreach_copy_(more, [parts[i] for i in old])  # numbers of one kind are added in a few kernels
            torch._foreach_add_(sums, more)  # type: ignore[arg-type]

    @torch.no_grad()
    def settle(self) -> None:
        """Gradients where recorded passes add to them: always the same memory, zeros before the first."""
        self.sums = self.sums or [(p, torch.empty_like(p)) for _, masters in self.leaves for p in masters]
        fresh = []
        for master, held in self.sums:
            grad = master.grad
            if grad is held:
                continue
            if grad is None:
                fresh.append(held)
            else:
                held.copy_(grad)
            master.grad = held
        if fresh:
            torch._foreach_zero_(fresh)


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
