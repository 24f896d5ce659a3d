"""CUDA graphs of passes without gradient: log-probs of a reference or of old weights, scores of a reward model.

The host launches some 300 kernels for a pass of a small model. While other threads encode texts, it launches them more
slowly than the device runs them. A graph is one launch.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from burnish.forward.packing import Packed, TooShort, families_of, pack, packed_tokens
from burnish.forward.prefix_tree import Numbers
from burnish.forward.runner import ModelRunner
from burnish.kernels.cuda_graphs.sizes import SizedGraphs, StaticPack

WIDEST = 1024  # hidden size up to which a pass may wait for the host


class ScoringGraphs:
    """The CUDA graphs of one model, for one thread at a time."""

    def __init__(self, runner: ModelRunner, hidden: int) -> None:
        self.runner = runner
        self.graphs: SizedGraphs[ScoringGraph] = SizedGraphs("passes without gradient")
        self.graphs.off = hidden > WIDEST
        self.busy = threading.Lock()

    @torch.no_grad()
    def states(self, rows: Sequence[Numbers], asked: list[int] | None) -> tuple[Tensor, Packed] | None:
        """The last hidden states [N, H] of rows, and how they are packed; None where no graph serves them."""
        device = next(self.runner.module.parameters()).device
        if self.graphs.off or device.type != "cuda" or not self.busy.acquire(blocking=False):
            return None
        try:
            families = families_of(rows, asked)
            size = self.graphs.size(packed_tokens(rows, asked, families))
            if size is None:
                return None
            packed = pack(rows, asked, device, size, families)
            graph = self.graphs.graph(size, packed, lambda memory: ScoringGraph(self.runner, packed, memory))
            # copied: another thread may replay the graph before these are read
            return None if graph is None else (graph.replay(packed).clone(), packed)
        except TooShort:
            return None
        finally:
            self.busy.release()


class ScoringGraph:
    """The pass over packs of one size."""

    def __init__(self, runner: ModelRunner, packed: Packed, memory: Any) -> None:
        self.pack = StaticPack(packed)
        self.layout = self.pack.layout
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # compilers and libraries set themselves up before the capture
            self.pack.hidden(runner)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, pool=memory):
            self.states = self.pack.hidden(runner)

    def replay(self, packed: Packed) -> Tensor:
        """The hidden states of a pack of this size, until the next replay."""
        self.pack.fill(packed)
        self.graph.replay()
        return self.states
