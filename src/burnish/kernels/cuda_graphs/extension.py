"""Prefill of a few new tokens behind a cached prefix, on a GPU: each new token is a row of one decode step.

A decode step writes the keys and values of all its rows before any of them attends. Rows that point to the same slot
with consecutive counts are therefore consecutive tokens of one sequence: each sees those before it. They are computed
by the same kernels as sampled tokens. Steps of one size are CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from burnish.engine.batch import StepRows
from burnish.engine.kept_rows import Continuation
from burnish.engine.kv_cache import KVCache
from burnish.forward.packing import send, spans_for
from burnish.forward.prefix_tree import Numbers

SIZES = (128, 1024)  # tokens of one step


class Steps(Protocol):
    """Computes a decode step (prefill.py: GpuDecoder)."""

    cache: KVCache
    device: torch.device

    def newest(self, batch: StepRows, at: slice) -> Tensor: ...


@dataclass(frozen=True)
class NewTokens:
    """One row for each new token. table [5, n]: the columns."""

    table: Tensor
    spans: int
    together: bool = False
    mates: int = 1

    @property
    def last(self) -> Tensor:
        return self.table[0]

    @property
    def count(self) -> Tensor:
        return self.table[1]

    @property
    def root(self) -> Tensor:
        return self.table[2]

    @property
    def root_length(self) -> Tensor:
        return self.table[3]

    @property
    def slot(self) -> Tensor:
        return self.table[4]


class Extension:
    """New tokens of rows that go on, for one model."""

    def __init__(self, owner: Steps) -> None:
        self.owner = owner
        self.asked: dict[tuple[int, int], int] = {}  # how often steps of each size and number of spans were computed
        self.graphs: dict[tuple[int, int], ExtensionGraph] = {}

    def states(self, rows: Sequence[Continuation]) -> Tensor:
        """[rows, H]: the hidden states of each row's last new token."""
        table, lengths = self._table(rows)
        ends = np.cumsum(lengths) - 1
        found = []
        first = 0
        while first < table.shape[1]:
            size = next((size for size in SIZES if size >= table.shape[1] - first), SIZES[-1])
            part = table[:, first : first + size]
            mine = ends[(ends >= first) & (ends < first + size)] - first
            states = self._step(part, size)
            if len(mine):
                found.append(states[send(torch.from_numpy(mine), self.owner.device)])
            first += size
        return torch.cat(found)

    def _table(self, rows: Sequence[Continuation]) -> tuple[Numbers, Numbers]:
        """The columns of all rows, and how many new tokens each has."""
        lengths = np.array([row.new.shape[0] for row in rows])
        begins, starts = np.array([row.begin for row in rows]), np.cumsum(lengths) - lengths
        table = np.empty((5, lengths.sum()), dtype=np.int64)
        np.concatenate([row.new.numpy() for row in rows], out=table[0])
        table[1] = np.repeat(begins - lengths + 1 - starts, lengths) + np.arange(table.shape[1])
        for i, column in enumerate(([row.root.start for row in rows], [row.root.length for row in rows])):
            table[2 + i] = np.repeat(column, lengths)
        table[4] = np.repeat([row.slot for row in rows], lengths)
        return table, lengths

    def _step(self, part: Numbers, size: int) -> Tensor:
        """[tokens or more, H]: the hidden states of some new tokens; by a CUDA graph from the second time on."""
        owner, n = self.owner, part.shape[1]
        filled = self._nothing(size)
        filled[:, :n] = part
        key = size, spans_for(int((part[1] + part[3]).max()))
        self.asked[key] = self.asked.get(key, 0) + 1
        if owner.device.type != "cuda" or self.asked[key] < 2:
            return owner.newest(NewTokens(send(torch.from_numpy(filled), owner.device), key[1]), slice(0, size))
        if key not in self.graphs:
            empty = send(torch.from_numpy(self._nothing(size)), owner.device)
            self.graphs[key] = ExtensionGraph(owner, NewTokens(empty, key[1]))
        return self.graphs[key].replay(send(torch.from_numpy(filled), owner.device))

    def _nothing(self, size: int) -> Numbers:
        """Rows that write to the scratch slot."""
        found = np.zeros((5, size), dtype=np.int64)
        found[1], found[4] = 1, self.owner.cache.slots
        return found


class ExtensionGraph:
    """One step as a CUDA graph."""

    def __init__(self, owner: Steps, rows: NewTokens) -> None:
        self.rows, at = rows, slice(0, rows.table.shape[1])
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # compilers and libraries set themselves up before the capture
            for _ in range(2):
                owner.newest(rows, at)
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.states = owner.newest(rows, at)

    def replay(self, table: Tensor) -> Tensor:
        """The hidden states of other new tokens."""
        self.rows.table.copy_(table)
        self.graph.replay()
        return self.states
