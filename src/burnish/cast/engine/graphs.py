"""On a GPU: what stays between calls of the engine, and a decoding step recorded once and replayed for every token."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from burnish.cast.engine.reader import Reader
from burnish.cast.engine.rows import Rows
from burnish.cast.engine.store import Plan

SIZES = (*range(16, 64, 8), *range(64, 256, 32), *range(256, 1025, 64))


class Kept:
    """Slots, prompts' pool, rows and recorded steps of one engine."""

    def __init__(self, models: Sequence[nn.Module], plan: Plan, stops: tuple[int, ...], device: torch.device) -> None:
        self.models, self.plan, self.stops = tuple(models), plan, stops
        self.readers = [Reader(model, plan) for model in models]
        self.rows = Rows(plan.slots, plan.capacity, stops, device)
        self.device = device
        # by rows, spans, whether rows look at spans together, and how many share a root
        self.graphs: dict[tuple[int, int, bool, int], torch.cuda.CUDAGraph] = {}
        self.memory = torch.cuda.graph_pool_handle() if device.type == "cuda" else None

    def serves(self, models: Sequence[nn.Module], plan: Plan, stops: tuple[int, ...]) -> bool:
        return self.plan.holds(plan) and self.models == tuple(models) and self.stops == stops

    def release(self) -> None:
        """Give the memory back."""
        self.graphs = {}
        for reader in self.readers:
            reader.store.release()

    def step(self, n: int) -> None:
        """One more token for the first n rows (and, unseen, for slots up to the next recorded size)."""
        size = min(next((s for s in SIZES if s >= n), n), self.plan.slots)
        if self.device.type != "cuda":  # the same step, computed instead of replayed
            self._step(size)
            return
        key = size, self.rows.spans, self.rows.together, self.rows.mates
        if key not in self.graphs:
            self.graphs[key] = self._record(size)
        self.graphs[key].replay()

    def _record(self, size: int) -> torch.cuda.CUDAGraph:
        saved = self._snapshot(size)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # compilers and libraries set themselves up before anything is recorded
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
        self.rows.sample(self.readers[0].next(self.rows, at, None), at, False)

    def _snapshot(self, size: int) -> list[torch.Tensor]:
        """What a step changes of the rows; keys and values it writes again as they were."""
        rows = self.rows
        return [x[:size].clone() for x in (rows.last, rows.count, rows.done, rows.ended)]

    def _put_back(self, size: int, saved: list[torch.Tensor]) -> None:
        rows = self.rows
        for x, was in zip((rows.last, rows.count, rows.done, rows.ended), saved, strict=True):
            x[:size] = was
