"""The rows that are being decoded, as tensors with one entry a row, so that a step never leaves the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from burnish.engine.protocol import engine_kernels
from burnish.engine.sampling import choose, logp_of, restrict
from burnish.forward.packing import send

_LONG = ("last", "count", "limit", "key", "root", "root_length", "base", "top_k", "slot")
_FLOAT = ("factor", "top_p", "min_p")
_BOOL = ("greedy", "done", "ended")


class StepRows(Protocol):
    """What a decode step on a GPU reads of its rows."""

    @property
    def last(self) -> Tensor: ...
    @property
    def count(self) -> Tensor: ...
    @property
    def root(self) -> Tensor: ...
    @property
    def root_length(self) -> Tensor: ...
    @property
    def slot(self) -> Tensor: ...
    @property
    def spans(self) -> int: ...
    @property
    def together(self) -> bool: ...
    @property
    def mates(self) -> int: ...


class RunningBatch:
    """State of each row.

    last, count   the newest token, and how many were sampled; limit: how many may be
    key           of the row's noise;  factor: 1 / temperature;  greedy, top_k, top_p, min_p: how to sample
    root, root_length  where the shared prompt lies in the pool; base: tokens of a prompt in the row's own slot
    done, ended   whether it is finished, and by a stop token
    slot          of its keys and values, and of its samples: tokens, logp [slots + 1, capacity + 1]
    spans         on a GPU: into how many spans attention of the longest row is split, computed side by side
    together      on a GPU: whether rows share roots of whole spans, to which they then attend together
    mates         on a GPU: how many consecutive rows nearly always share their root: 1, 2 or 4
    """

    last: Tensor
    count: Tensor
    limit: Tensor
    key: Tensor
    root: Tensor
    root_length: Tensor
    base: Tensor
    top_k: Tensor
    factor: Tensor
    top_p: Tensor
    min_p: Tensor
    greedy: Tensor
    done: Tensor
    ended: Tensor
    slot: Tensor

    def __init__(self, slots: int, capacity: int, stops: tuple[int, ...], device: torch.device) -> None:
        self.tables = []
        for names, dtype in ((_LONG, torch.long), (_FLOAT, torch.float32), (_BOOL, torch.bool)):
            table = torch.zeros(len(names), slots, dtype=dtype, device=device)
            for name, column in zip(names, table, strict=True):
                setattr(self, name, column)
            self.tables.append(table)
        self.spans, self.together, self.mates = 1, False, 1
        self.spare = slots  # a scratch slot, for steps that compute more rows than are running
        self.tokens = torch.zeros(slots + 1, capacity + 1, dtype=torch.long, device=device)
        self.logp = torch.zeros(slots + 1, capacity + 1, device=device)
        self.empty(0)
        self.stops = torch.tensor(stops, device=device)
        self.device = device
        self.views: Any = self
        if device.type == "cpu":  # for a few numbers numpy takes a tenth of torch's time
            every = (*_LONG, *_FLOAT, *_BOOL, "tokens", "logp", "stops")
            self.views = SimpleNamespace(**{name: getattr(self, name).numpy() for name in every})

    def put(self, at: slice, state: Mapping[str, Sequence[float]]) -> None:
        """Rows enter; state that is not given is 0."""
        none = [0] * (at.stop - at.start)
        for names, table in zip((_LONG, _FLOAT, _BOOL), self.tables, strict=True):
            given = torch.tensor([state.get(name, none) for name in names], dtype=table.dtype)
            table[:, at] = send(given, self.device)

    def empty(self, first: int) -> None:
        """No row is at `first` or after it. A CUDA graph may compute there all the same: it must not write to a slot in
        use.
        """
        self.slot[first:] = self.spare
        self.count[first:] = 1
        self.root_length[first:] = 0
        self.base[first:] = 0
        self.done[first:] = True

    def move(self, source: Tensor, to: Tensor) -> None:
        """Copy the state of rows `source` to rows `to`."""
        for table in self.tables:
            table[:, to] = table[:, source]

    def sample(self, logits: Tensor, at: slice, filtered: bool) -> None:
        """One more token for the rows of a slice, from their logits [n, V]; rows that are done stay as they are."""
        found = engine_kernels()
        if found is not None and not filtered and found.sample(self, at, logits):
            return
        factor, count = self.factor[at], self.count[at]
        whole = logits
        if filtered:
            logits = restrict(logits, factor, self.top_k[at], self.top_p[at], self.min_p[at])
        positions = self.root_length[at] + self.base[at] + count
        token, logp = choose(logits, factor, self.key[at], positions, self.greedy[at])
        if filtered:  # the recorded log-prob is that of the whole distribution
            logp = logp_of(whole, factor, token)
        self._record(at, token, logp.float())

    def _record(self, at: slice, token: Any, logp: Any) -> None:
        its = self.views
        if its is not self:
            token, logp = token.numpy(), logp.numpy()
        alive, slot, count = ~its.done[at], its.slot[at], its.count[at]
        its.tokens[slot, count] = token
        its.logp[slot, count] = logp
        count += alive
        ended = (token[:, None] == its.stops).any(-1) & alive
        its.last[at] = token
        its.ended[at] |= ended
        its.done[at] |= ended | (count >= its.limit[at])


def mates_among(roots: Sequence[int]) -> int:
    """4 or 2, if of the rows so many at a time share their root; else 1.

    One in 32 may differ: the kernel then takes such rows one after the other.
    """
    its = np.asarray(roots)
    for mates in (4, 2):
        several = its[: len(its) // mates * mates].reshape(-1, mates)
        if len(several) and (several == several[:, :1]).all(1).mean() >= 31 / 32:
            return mates
    return 1
