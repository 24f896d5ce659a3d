"""CUDA graphs of training passes: the decoder's pass over a pack, captured once for packs of one size and replayed.

A small model's pass is thousands of kernels, and launching them takes longer than running them. Captured as two CUDA
graphs, forward and backward, it costs two launches. Packs are padded to the captured size; gradients of the weights are
added up in fp32 where the optimiser reads them, inside the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from burnish.forward.module import text_config
from burnish.forward.packing import Packed, TooShort, families_of, lines_for, pack, packed_tokens
from burnish.forward.prefix_tree import Numbers
from burnish.forward.runner import MasterGradients, ModelRunner
from burnish.kernels.cuda_graphs.sizes import SizedGraphs, StaticPack

MOST_WEIGHTS = 500_000_000  # trained; a graph holds the gradients of all of them, and few launches matter there


class TrainingGraphs:
    """The CUDA graphs of one model. recomputes: the module recomputes activations, so that no pass is captured."""

    def __init__(self, runner: ModelRunner, gradients: MasterGradients, recomputes: bool = False) -> None:
        self.runner, self.gradients, self.recomputes = runner, gradients, recomputes
        self.graphs: SizedGraphs[TrainingGraph] = SizedGraphs("training passes")
        self.graphs.off = sum(leaf.numel() for leaf, _ in gradients.leaves) > MOST_WEIGHTS
        self.dropout = [m for m in runner.module.modules() if isinstance(m, nn.Dropout)]
        device = next(runner.module.parameters()).device
        self.switch = torch.zeros((), device=device, requires_grad=True)  # makes autograd call the backward

    def states(self, rows: Sequence[Numbers], asked: list[int] | None) -> tuple[Tensor, Packed] | None:
        """The last hidden states [N, H] of rows, and how they are packed; None where no graph serves them."""
        if not self._may():
            return None
        families = families_of(rows, asked)
        size = self.graphs.size(packed_tokens(rows, asked, families))
        if size is None:
            return None
        if size in self.graphs.kept:
            self.gradients.settle()  # the device sets gradients to zero while rows are being packed here
        try:
            packed = pack(rows, asked, self.switch.device, size, families)
        except TooShort:
            return None
        graph = self.graphs.graph(
            size, packed, lambda memory: TrainingGraph(self.runner, self.gradients, packed, memory)
        )
        if graph is None:
            return None
        states: Tensor = _Replay.apply(self.switch, graph, packed)
        return states, packed

    def _may(self) -> bool:
        """Whether a pass is the same every time: with gradients, without dropout, recomputing and, in
        modules, windows.
        """
        windows = getattr(text_config(self.runner.module), "sliding_window", None) and not self.runner.accelerated
        if self.graphs.off or not torch.is_grad_enabled() or not self.gradients.leaves or windows:
            return False
        return not self.recomputes and not any(m.p for m in self.dropout)


class TrainingGraph:
    """Forward and backward over packs of one size."""

    def __init__(self, runner: ModelRunner, gradients: MasterGradients, packed: Packed, memory: Any) -> None:
        self.runner, self.gradients = runner, gradients
        assert packed.table is not None and len(packed.table) == lines_for(len(packed.tokens))
        self.pack = StaticPack(packed)
        self.layout = self.pack.layout
        self.leaves = [leaf for leaf, _ in gradients.leaves]
        gradients.settle()
        self.grad = self._warm_up()
        self.forward, self.backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.forward, pool=memory), torch.enable_grad():
            states = self.pack.hidden(runner)
        with torch.cuda.graph(self.backward, pool=memory):
            self._gradients(states)
        self.states = states.detach()  # the memory of the pass's activations may serve the next capture

    def _gradients(self, states: Tensor) -> None:
        found = torch.autograd.grad(states, self.leaves, self.grad, allow_unused=True)
        have = [
            (grad, masters) for grad, (_, masters) in zip(found, self.gradients.leaves, strict=True) if grad is not None
        ]
        self.gradients.add([grad for grad, _ in have], [masters for _, masters in have])

    def _warm_up(self) -> Tensor:
        """Compilers and libraries set themselves up before the capture; what it adds to gradients is 0."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side), torch.enable_grad():
            for _ in range(2):
                states = self.pack.hidden(self.runner)
                self.grad = torch.zeros_like(states)
                self._gradients(states)
                del states
        torch.cuda.current_stream().wait_stream(side)
        return self.grad

    def replay(self, packed: Packed) -> Tensor:
        """The hidden states of a pack of this size."""
        self.pack.fill(packed)
        self.forward.replay()
        return self.states

    def replay_backward(self, grad: Tensor) -> None:
        """Add the gradients of the weights to the model's."""
        self.gradients.settle()
        self.grad.copy_(grad)
        self.backward.replay()


class _Replay(torch.autograd.Function):
    """In the place of the captured pass. The switch says that gradients are wanted; the graph adds them up."""

    @staticmethod
    def forward(ctx: Any, switch: Tensor, graph: TrainingGraph, packed: Packed) -> Tensor:
        ctx.graph = graph
        return graph.replay(packed)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, ...]:
        ctx.graph.replay_backward(grads[0])
        return None, None, None
