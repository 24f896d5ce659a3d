"""CUDA graphs of decode steps, and the KV cache and the batch that they read: they stay from one call to the next."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from burnish.engine.batch import RunningBatch
from burnish.engine.kv_cache import Plan
from burnish.forward.runner import ModelRunner
from burnish.kernels.cuda_graphs.prefill import GpuDecoder

SIZES = (*range(16, 64, 8), *range(64, 256, 32), *range(256, 1025, 64))


class DecodeGraphs:
    """KV caches, batch and captured steps of one engine."""

    def __init__(
        self, runners: Sequence[ModelRunner], plan: Plan, stops: tuple[int, ...], device: torch.device
    ) -> None:
        self.runners, self.plan, self.stops = tuple(runners), plan, stops
        self.decoders = [GpuDecoder(runner, plan) for runner in runners]
        self.batch = RunningBatch(plan.slots, plan.capacity, stops, device)
        self.device = device
        # by rows, spans, whether rows attend to spans together, and how many share a root
        self.graphs: dict[tuple[int, int, bool, int], torch.cuda.CUDAGraph] = {}
        self.memory = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def serves(self, runners: Sequence[ModelRunner], plan: Plan, stops: tuple[int, ...]) -> bool:
        """Whether a call with this plan can use them."""
        return self.plan.holds(plan) and self.runners == tuple(runners) and self.stops == stops

    def cache_bytes(self) -> int:
        """What keys and values take."""
        layers = [layer for decoder in self.decoders for layer in decoder.cache.layers.values()]
        return sum(x.nbytes for layer in layers for x in (layer.own_k, layer.own_v, layer.pool_k, layer.pool_v))

    def release(self) -> None:
        """Free the memory."""
        self.graphs = {}
        for decoder in self.decoders:
            decoder.cache.release()

    def step(self, n: int) -> None:
        """One more token for the first n rows (and, unused, for rows up to the next captured size)."""
        size = min(next((s for s in SIZES if s >= n), n), self.plan.slots)
        if self.device.type != "cuda":  # the same step, computed instead of replayed
            self._step(size)
            return
        key = size, self.batch.spans, self.batch.together, self.batch.mates
        if key not in self.graphs:
            self.graphs[key] = self._capture(size)
        self.graphs[key].replay()

    def _capture(self, size: int) -> torch.cuda.CUDAGraph:
        saved = self._snapshot(size)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # compilers and libraries set themselves up before the capture
            for _ in range(2):
                self._step(size)
                self._put_back(size, saved)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.memory):
            self._step(size)
        return graph

    def _step(self, size: int) -> None:
        at = slice(0, size)
        self.batch.sample(self.decoders[0].step(self.batch, at, None), at, False)

    def _snapshot(self, size: int) -> list[torch.Tensor]:
        """The state of rows that a step changes; keys and values it writes again as they were."""
        rows = self.batch
        return [x[:size].clone() for x in (rows.last, rows.count, rows.done, rows.ended)]

    def _put_back(self, size: int, saved: list[torch.Tensor]) -> None:
        rows = self.batch
        for x, was in zip((rows.last, rows.count, rows.done, rows.ended), saved, strict=True):
            x[:size] = was
