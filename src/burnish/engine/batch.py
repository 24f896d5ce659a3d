"""The rows that are being decoded, as tensors with one entry a row, so that a step never leaves the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from burnish.core.types import Allowed
from burnish.engine.protocol import engine_kernels
from burnish.engine.request import Request
from burnish.engine.sampling import choose, logp_of, restrict
from burnish.forward.drawn import penalised
from burnish.forward.packing import send
from burnish.media.ids import FIRST

_LONG = ("last", "count", "limit", "key", "root", "root_length", "base", "top_k", "slot", "shift")
_FLOAT = ("factor", "top_p", "min_p", "penalty")
_BOOL = ("greedy", "done", "ended", "as_drawn")


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
    key           of the row's noise;  factor: 1 / temperature;  greedy, top_k, top_p, min_p, penalty: how to sample
    as_drawn      whether its log-probs are of the distribution that it is drawn from
    root, root_length  where the shared prompt lies in the pool; base: tokens of a prompt in the row's own slot
    done, ended   whether it is finished, and by a stop token
    shift         how far positions are from the numbers of tokens, after pictures that lie on a grid (forward/sight.py)
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
    penalty: Tensor
    greedy: Tensor
    as_drawn: Tensor
    done: Tensor
    ended: Tensor
    slot: Tensor
    shift: Tensor

    def __init__(self, slots: int, capacity: int, stops: tuple[int, ...], device: torch.device) -> None:
        self.tables = []
        self.slots, self.capacity = slots, capacity
        self.seen: Tensor | None = None  # [slots + 1, V]: tokens that rows with a penalty have had
        self.allowed: np.ndarray | None = None  # [slots + 1, capacity + 1]: ids that rows as_drawn were drawn among
        for names, dtype in ((_LONG, torch.long), (_FLOAT, torch.float32), (_BOOL, torch.bool)):
            table = torch.zeros(len(names), slots, dtype=dtype, device=device)
            for name, column in zip(names, table, strict=True):
                setattr(self, name, column)
            self.tables.append(table)
        self.shaped: dict[int, tuple[Request, int]] = {}  # by slot: requests that look back, and where replies begin
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

    def read_prompts(self, at: slice, requests: Sequence[Request], vocabulary: int) -> None:
        """Rows whose slots are known begin: room for what is kept of those that are drawn otherwise than from the
        whole distribution, and the tokens that they have seen.
        """
        if any(r.repetition_penalty != 1 for r in requests) and self.seen is None:
            self.seen = torch.zeros(self.slots + 1, vocabulary, dtype=torch.bool, device=self.device)
        if any(r.as_drawn and r.truncated for r in requests) and self.allowed is None:
            self.allowed = np.full((self.slots + 1, self.capacity + 1), None, dtype=object)
        for slot, request, begin in zip(self.slot[at].tolist(), requests, self.count[at].tolist(), strict=True):
            self.shaped.pop(slot, None)
            if request.shaped:
                self.shaped[slot] = request, begin
        if self.seen is not None:
            for slot, request in zip(self.slot[at].tolist(), requests, strict=True):
                self.seen[slot] = False
                text = request.prompt[request.prompt < FIRST]  # a picture is no token that can be drawn
                self.seen[slot, send(text, self.device)] = True

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

    def move_samples(self, source: Tensor, to: Tensor) -> None:
        """Copy what lies in slots `source` to slots `to`."""
        for column in (self.tokens, self.logp, self.seen):
            if column is not None:
                column[to] = column[source]
        if self.shaped:
            moved = {a: self.shaped.pop(b, None) for a, b in zip(to.tolist(), source.tolist(), strict=True)}
            self.shaped.update({slot: shape for slot, shape in moved.items() if shape is not None})
        if self.allowed is not None:
            self.allowed[to.cpu().numpy()] = self.allowed[source.cpu().numpy()]

    def sample(self, logits: Tensor, at: slice, filtered: bool) -> None:
        """One more token for the rows of a slice, from their logits [n, V]; rows that are done stay as they are."""
        fast = engine_kernels()
        if fast is not None and not filtered and fast.sample(self, at, logits):
            return
        factor, count = self.factor[at], self.count[at]
        positions = self.root_length[at] + self.base[at] + count
        if not filtered:
            token, logp = choose(logits, factor, self.key[at], positions, self.greedy[at])
            self._record(at, token, logp.float())
            return
        whole, slot = logits, self.slot[at]
        if self.seen is not None:
            logits = penalised(logits, self.penalty[at], self.seen[slot])
        if self.shaped:
            logits = self._shaped(logits, slot.tolist(), count.tolist())
        logits = restrict(logits, factor, self.top_k[at], self.top_p[at], self.min_p[at])
        token, _ = choose(logits, factor, self.key[at], positions, self.greedy[at])
        drawn = torch.log_softmax(logits * factor[:, None], -1).gather(-1, token[:, None])[:, 0]  # the trainer's bits
        logp = torch.where(self.as_drawn[at], drawn.float(), logp_of(whole, factor, token).float())
        alive = ~self.done[at]
        if self.seen is not None:
            self.seen[slot[alive], token[alive]] = True
        if self.allowed is not None:
            self._keep_allowed(logits, slot, count, alive & self.as_drawn[at])
        self._record(at, token, logp)

    def _shaped(self, logits: Tensor, slots: list[int], counts: list[int]) -> Tensor:
        """The logits of rows with presence and frequency penalties, and -inf where their constraint allows no token."""
        logits = logits.clone()
        for line, slot, count in zip(logits, slots, counts, strict=True):
            request, begin = self.shaped.get(slot, (None, 0))
            if request is None:
                continue
            said = self.tokens[slot, begin:count]
            ids, times = said.unique(return_counts=True)
            line[ids] -= request.presence + request.frequency * times
            if request.constraint is not None:
                mask = send(request.constraint.mask(said.tolist()), self.device)
                line[: len(mask)].masked_fill_(~mask, -torch.inf)
                line[len(mask) :] = -torch.inf
        return logits

    def _keep_allowed(self, logits: Tensor, slot: Tensor, count: Tensor, which: Tensor) -> None:
        """Keep the ids that these rows' next tokens are drawn among."""
        assert self.allowed is not None
        open_ = logits[which] > -torch.inf
        ids, sizes = open_.nonzero()[:, 1].to("cpu", torch.int32), open_.sum(-1).tolist()
        places = zip(slot[which].tolist(), count[which].tolist(), ids.split(sizes), strict=True)
        for row, at, allowed in places:
            self.allowed[row, at] = allowed

    def take_allowed(self, slot: int, begin: int, end: int) -> Allowed | None:
        """What the tokens in a slot were drawn among; None where they were drawn among all, or it is not kept."""
        if self.allowed is None or begin == end or self.allowed[slot, begin] is None:
            return None
        sets = list(self.allowed[slot, begin:end])
        self.allowed[slot] = None
        return Allowed(torch.cat(sets), torch.tensor([len(ids) for ids in sets]))

    def _record(self, at: slice, token: Any, logp: Any) -> None:
        rows = self.views
        if rows is not self:
            token, logp = token.numpy(), logp.numpy()
        alive, slot, count = ~rows.done[at], rows.slot[at], rows.count[at]
        rows.tokens[slot, count] = token
        rows.logp[slot, count] = logp
        count += alive
        ended = (token[:, None] == rows.stops).any(-1) & alive
        rows.last[at] = token
        rows.ended[at] |= ended
        rows.done[at] |= ended | (count >= rows.limit[at])


def sampling_of(requests: Sequence[Request]) -> dict[str, Sequence[float]]:
    """How requests are sampled, as state of their rows (`RunningBatch.put`)."""
    return {
        "factor": [1.0 / r.temperature if r.temperature else 1.0 for r in requests],
        "greedy": [r.temperature == 0 for r in requests],
        "top_k": [r.top_k for r in requests],
        "top_p": [r.top_p for r in requests],
        "min_p": [r.min_p for r in requests],
        "penalty": [r.repetition_penalty for r in requests],
        "as_drawn": [r.as_drawn for r in requests],
    }


def mates_among(roots: Sequence[int]) -> int:
    """4 or 2, if of the rows so many at a time share their root; else 1.

    One in 32 may differ: the kernel then takes such rows one after the other.
    """
    root_of = np.asarray(roots)
    for mates in (4, 2):
        several = root_of[: len(root_of) // mates * mates].reshape(-1, mates)
        if len(several) and (several == several[:, :1]).all(1).mean() >= 31 / 32:
            return mates
    return 1
