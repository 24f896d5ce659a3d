"""Mixed precision: on a GPU a bf16 compute copy of the fp32 master weights; on a CPU the model computes with its own
weights.

Sampling and training run on the same copy, so there is nothing to synchronise between them. It is refreshed after
`weights_moved`; gradients that it collects are added up in fp32 on the master weights. Parameters that are not trained
(all but the adapters, with LoRA) have no master weights: the copy shares them, in bf16. So it does with those that are
trained in bf16 themselves (`--master-weights`, models/compact_adamw.py); their gradients are fp32 all the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from burnish.forward.accelerate import kernels
from burnish.forward.module import decoder
from burnish.forward.packing import on_gpu
from burnish.forward.runner import ModelRunner, TransformersRunner, runner_of
from burnish.models.sharded_states import ShardedStates

COMPILE_FROM = 30_000_000  # weights from which compiling the layers (seconds, once) pays off
EAGER_FROM = 500_000_000  # trained weights from which each gradient is added up as soon as it is there


class ComputeCopy:
    """A model and its compute copy (the model itself where none is needed).

    stale   whether the master weights have moved since the copy was refreshed
    pairs   each master parameter and its copy
    leaves  the parameters of the copy that gradients are taken of, and the master parameters that they belong to
    sums    master parameters and their fp32 gradients at fixed addresses, for CUDA graphs
    halved  whether weights are trained in bf16: then no CUDA graph is captured, which needs their gradients by `leaves`
    states  who takes each gradient as soon as it is there, because ranks divide them (--shard states)
    runner  of a model that computes by itself, whatever the device (--shard full)
    """

    def __init__(
        self,
        model: nn.Module,
        frozen: bool,
        exact: bool = False,
        activations: str = "off",
        runner: ModelRunner | None = None,
    ) -> None:
        self.model = self.copy = model
        self.stale = False
        self.pairs: list[tuple[nn.Parameter, nn.Parameter]] = []
        self.leaves: list[tuple[nn.Parameter, list[nn.Parameter]]] = []
        self.sums: list[tuple[nn.Parameter, Tensor]] = []
        self.halved = _fp32_gradients(model)
        self.states: ShardedStates | None = None
        if runner is not None:
            self.runner = runner
            return
        if not on_gpu(next(model.parameters()).device):
            self.runner = runner_of(model)
            return
        if not frozen:
            self.copy = _copied(model)
        for parameter in self.copy.parameters():
            if parameter.is_floating_point():  # not the codes of weights in four bits
                parameter.data = parameter.data.to(torch.bfloat16)
        if not frozen:
            both = zip(model.parameters(), self.copy.parameters(), strict=True)
            self.pairs = [(master, ours) for master, ours in both if master is not ours]
        self.runner = self._gpu_runner(frozen, exact, activations)
        if not self.runner.accelerated and sum(p.numel() for p in model.parameters()) >= COMPILE_FROM:
            compile_layers(self.copy)

    def _gpu_runner(self, frozen: bool, exact: bool, activations: str) -> ModelRunner:
        """The runner of the copy, its projections joined. CUDA graphs keep activations and gradients where they are."""
        fast = kernels()
        joint = [] if fast is None else fast.join_projections(self.copy)
        if not frozen:
            self._find_leaves(joint)
        if fast is None:
            return TransformersRunner(self.copy)
        captured = None if frozen or self.halved or activations == "offload" else self
        return fast.gpu_runner(self.copy, exact, activations == "recompute", captured)

    def _find_leaves(self, joint: list[tuple[nn.Parameter, list[nn.Parameter]]]) -> None:
        """Gradients are taken of joined weights, and of every other parameter that is trained."""
        master = {ours: theirs for theirs, ours in self.pairs}
        views = {part for _, parts in joint for part in parts}
        alone = [(ours, [theirs]) for theirs, ours in self.pairs if ours not in views]
        together = [(whole, [master.get(part, part) for part in parts]) for whole, parts in joint]
        self.leaves = [(leaf, masters) for leaf, masters in (*alone, *together) if leaf.requires_grad]
        if sum(leaf.numel() for leaf, _ in self.leaves) >= EAGER_FROM:
            for leaf, masters in self.leaves:
                leaf.register_post_accumulate_grad_hook(partial(self._collect_one, masters))

    def divide(self, states: ShardedStates) -> None:
        """Hand each gradient over during the backward pass, in place of keeping it."""
        assert not self.pairs, "weights that have master weights beside them cannot be divided"
        self.states = states
        whole = sum(leaf.numel() for leaf, _ in self.leaves)
        for leaf, masters in self.leaves if whole < EAGER_FROM else ():
            leaf.register_post_accumulate_grad_hook(partial(self._collect_one, masters))
        joined = {id(master) for _, masters in self.leaves for master in masters}
        for p in states.named.values():
            if id(p) not in joined:
                p.register_post_accumulate_grad_hook(_handed_to(states))

    @torch.no_grad()
    def _collect_one(self, masters: list[nn.Parameter], leaf: Tensor) -> None:
        """Add one gradient to those of its master parameters and free it: all of them would be 2 bytes a weight."""
        if leaf.grad is not None:
            self.add([leaf.grad], [masters])
            leaf.grad = None

    def weights_moved(self) -> None:
        """The master weights have changed: refresh the copy, and whatever is derived from it, before it
        computes again.
        """
        if self.pairs:
            self.stale = True
        else:
            self.runner.weights_moved()

    def weights(self) -> nn.Module:
        """The module to compute with, up to date."""
        return self.current().module

    def current(self) -> ModelRunner:
        """The runner to compute with, up to date."""
        if self.stale:
            with torch.no_grad():
                torch._foreach_copy_([ours for _, ours in self.pairs], [master for master, _ in self.pairs])
            self.stale = False
            self.runner.weights_moved()
        return self.runner

    @torch.no_grad()
    def collect(self) -> None:
        """Add the copy's gradients to those of the master weights, in fp32."""
        moved = [(leaf.grad, masters) for leaf, masters in self.leaves if leaf.grad is not None]
        if moved:
            self.add([grad for grad, _ in moved], [masters for _, masters in moved])
        for leaf, _ in self.leaves:
            leaf.grad = None

    @torch.no_grad()
    def add(self, grads: list[Tensor], of: list[list[nn.Parameter]]) -> None:
        """Add bf16 gradients to those of the master parameters that each belongs to, side by side."""
        masters = [master for some in of for master in some]
        parts = [part for grad, some in zip(grads, of, strict=True) for part in grad.split([len(m) for m in some])]
        if self.states is not None:
            for master, part in zip(masters, parts, strict=True):
                self.states.deliver(master, part)
            return
        old = [(master.grad, part) for master, part in zip(masters, parts, strict=True) if master.grad is not None]
        fresh = [(master, part) for master, part in zip(masters, parts, strict=True) if master.grad is None]
        made = [torch.empty_like(master, dtype=torch.float32) for master, _ in fresh]
        for (master, _), grad in zip(fresh, made, strict=True):
            master.grad = grad
        if fresh:
            torch._foreach_copy_(made, [part for _, part in fresh])
        if old:
            more = [torch.empty_like(total) for total, _ in old]
            torch._foreach_copy_(more, [part for _, part in old])  # tensors of one dtype are added in a few kernels
            torch._foreach_add_([total for total, _ in old], more)

    @torch.no_grad()
    def settle(self) -> None:
        """Gradients where CUDA graphs add to them: always the same memory, zeros before the first."""
        self.sums = self.sums or [(p, torch.empty_like(p)) for _, masters in self.leaves for p in masters]
        fresh = []
        for master, total in self.sums:
            grad = master.grad
            if grad is total:
                continue
            if grad is None:
                fresh.append(total)
            else:
                total.copy_(grad)
            master.grad = total
        if fresh:
            torch._foreach_zero_(fresh)


def _handed_to(states: ShardedStates) -> Callable[[Tensor], None]:
    """A hook that hands a parameter's gradient over and frees it."""

    def hook(p: Tensor) -> None:
        assert isinstance(p, nn.Parameter)
        grad, p.grad = p.grad, None
        if grad is not None:
            states.deliver(p, grad)

    return hook


def _copied(model: nn.Module) -> nn.Module:
    """A copy with parameters of its own where they are trained in fp32; the others are those of the model."""
    shared = {id(p): p for p in model.parameters() if not p.requires_grad or p.dtype == torch.bfloat16}
    return copy.deepcopy(model, shared)


def _fp32_gradients(model: nn.Module) -> bool:
    """Give parameters that are trained in bf16 gradients in fp32; whether there are any."""
    halves = [p for p in model.parameters() if p.requires_grad and p.dtype == torch.bfloat16]
    for p in halves:
        p.grad_dtype = torch.float32
    return bool(halves)


def layers(model: nn.Module) -> nn.ModuleList | None:
    """The decoder's layers, wherever it keeps them."""
    inner = decoder(model)
    count = inner.config.num_hidden_layers
    return next((m for m in inner.modules() if isinstance(m, nn.ModuleList) and len(m) == count), None)


def compile_layers(model: nn.Module) -> None:
    """Compile each layer for any number of tokens. All layers share the code, so it takes as long as one."""
    torch._dynamo.config.recompile_limit = max(64, torch._dynamo.config.recompile_limit)
    for layer in layers(model) or ():
        layer.compile(dynamic=True)
