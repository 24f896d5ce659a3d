"""The activation cache: what the sampler computed of each token, for the trainer. On a CPU both compute the same bits.

A token's activations depend on the weights and on the tokens before it, and on nothing else. They are kept under the id
of the token before it and the token's input key (forward/packing.py: the token, unless the model reads more there),
until the weights move. A trainer that finds all tokens of its pack here skips its forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor

from burnish.engine.layouts import Prefill
from burnish.forward.prefix_tree import Numbers, Tree
from burnish.kernels.cpu import build
from burnish.util.host_memory import host_memory

SHARE = 8  # of the machine's memory, one part at most
# one pack in so many is computed all the same: `mismatch/logp` then says whether sampler and trainer agree
CHECKED = 32
NOBODY = -1  # before the first token
Note = tuple[Numbers, Numbers, int]


@dataclass(frozen=True)
class CachedPrefill(Prefill):
    """Prompts whose activations go into the cache, from the id `first` on."""

    first: int


@dataclass(frozen=True)
class Held:
    """The activations that a layer's backward needs (kernels/cpu/c_layer.py), [room, ..] each."""

    x: Tensor
    found: Tensor
    seen: Tensor
    middle: Tensor
    both: Tensor

    def all(self) -> tuple[Tensor, ...]:
        return self.x, self.found, self.seen, self.middle, self.both

    def part(self, first: int, number: int) -> tuple[Tensor, ...]:
        return tuple(part[first : first + number] for part in self.all())


@dataclass(frozen=True, eq=False)
class Recalled:
    """A layer's activations of a pack's tokens: those held under these ids. y: its output, if it is the last layer."""

    held: Held
    numbers: Tensor
    y: Tensor | None


class ActivationCache:
    """The activations of one decoder. `valid`: they are of the present weights."""

    def __init__(self) -> None:
        self.layers: list[Held] = []
        self.last = torch.empty(0)
        self.valid = False
        self.count = self.room = self.asked = 0
        self.addresses: object = None  # for the kernels: where each layer's tensors begin
        self.notes: list[Note] = []  # tokens that are not yet in `number`
        self.number: dict[tuple[int, int], int] = {}
        self.same: dict[int, int] = {}  # of tokens that were computed again: the id under which they are known
        self.lent: WeakSet[Recalled] = WeakSet()  # what a backward may still read
        self.lock = Lock()  # a sampler may restart in another thread while the trainer recalls

    def __reduce__(self) -> tuple[type[ActivationCache], tuple[()]]:
        return ActivationCache, ()  # a copy of the model has computed nothing

    def begin(self, shape: build.Shape, layers: int, tokens: int) -> bool:
        """Make room for so many tokens. False where their activations would take too much memory."""
        if self.valid and self.count + tokens <= self.room:
            return True  # another call with the same weights
        self.forget()
        hidden, found = shape.hidden, (shape.heads + 2 * shape.kv_heads) * shape.width
        widths = (hidden, found, shape.heads * shape.width, hidden, 2 * shape.inner)
        memory = host_memory() // SHARE
        if 4 * tokens * (layers * sum(widths) + hidden) > memory:
            return False
        with self.lock:
            if tokens > self.room or len(self.lent):
                # more, for a next call like this one: pages that are never written cost nothing
                self.room = max(self.room, tokens + tokens // 4)
                self.layers = [Held(*(torch.empty(self.room, width) for width in widths)) for _ in range(layers)]
                self.last = torch.empty(self.room, hidden)
                at = [build.KeptAt(*(part.data_ptr() for part in held.all())) for held in self.layers]
                self.addresses = (build.KeptAt * layers)(*at)
            self.valid = True
        return True

    def forget(self) -> None:
        """The activations are of no use any more: the weights have moved."""
        with self.lock:
            self.valid, self.count, self.notes, self.number, self.same = False, 0, [], {}, {}

    def take(self, number: int) -> int | None:
        """The first of so many consecutive ids; None where there is no room."""
        if not self.valid or self.count + number > self.room:
            return None
        self.count += number
        return self.count - number

    def note(self, before: Numbers, tokens: Numbers, first: int) -> None:
        """These tokens, whose ids begin at `first`, each come after the token of the id in `before`."""
        self.notes.append((before, tokens, first))

    def note_rows(self, tokens: Numbers, starts: Numbers, first: int) -> list[int]:
        """The same for whole rows, end to end, that begin at `starts`; the id of the last token of each."""
        before = np.arange(first - 1, first + len(tokens) - 1)
        before[starts[:-1]] = NOBODY
        self.note(before, tokens, first)
        ends: list[int] = (first + starts[1:] - 1).tolist()
        return ends

    def _look_at_notes(self) -> None:
        """Index the noted tokens; one that is known under another id keeps that one, and so do those that follow it."""
        while self.notes:
            befores, tokens, first = self.notes.pop(0)
            for i, (before, token) in enumerate(zip(befores.tolist(), tokens.tolist(), strict=True), first):
                known = self.number.setdefault((self.same.get(before, before), token), i)
                if known != i:
                    self.same[i] = known

    def recall(self, tokens: Tensor, tree: Tree) -> list[Recalled] | None:
        """Each layer's activations of a pack's tokens. None where some are not here."""
        with self.lock:
            if not self.valid:
                return None
            self._look_at_notes()
            found = self._find(tokens, tree)
            if NOBODY in found:
                return None
            self.asked += 1
            if self.asked % CHECKED == 1:
                return None
            numbers = torch.tensor(found)
            ys = [*[None] * (len(self.layers) - 1), self.last.index_select(0, numbers)]
            recalled = [Recalled(held, numbers, y) for held, y in zip(self.layers, ys, strict=True)]
            self.lent.update(recalled)
            return recalled

    def known(self, tokens: Tensor, tree: Tree) -> Numbers:
        """[N]: the ids of a pack's tokens, `NOBODY` where one is not here, and of all that follow it."""
        with self.lock:
            if not self.valid:
                return np.full(len(tokens), NOBODY)
            self._look_at_notes()
            return np.array(self._find(tokens, tree), dtype=np.int64)

    def _find(self, tokens: Tensor, tree: Tree) -> list[int]:
        """The same from the index alone."""
        said, found, known = tokens.tolist(), [NOBODY] * len(tokens), self.number
        for first, end, parent in tree.stretches.tolist():
            before = found[tree.stretches[parent][1] - 1] if parent >= 0 else NOBODY
            if parent >= 0 and before == NOBODY:
                continue
            for at in range(first, end):
                before = found[at] = known.get((before, said[at]), NOBODY)
                if before == NOBODY:
                    break
        return found
