"""What a sampler has computed of each token, for the trainer: on a CPU both compute the same numbers, to the last bit.

A token's numbers depend on the weights and on the tokens before it, and on nothing else. So they are kept under the number of the
token before it and the token itself, until the weights move; a trainer that finds all tokens of its pack here has done its forward.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from threading import Lock
from weakref import WeakSet

import numpy as np
import torch
from torch import Tensor, nn

from burnish.cast.native import compiled
from burnish.cast.tree import Numbers, Tree

SHARE = 8  # of the machine's memory, one part at most
# one pack in so many is computed all the same: `mismatch/logp` then says whether sampler and trainer agree
CHECKED = 32
NOBODY = -1  # before the first token
Stamp = tuple[tuple[int, int], ...]
Note = tuple[Numbers, Numbers, int]


@dataclass(frozen=True)
class Held:
    """What a layer's backward needs of each token (cast/native/whole.py), [room, ..] each."""

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
    """What a layer has made of a pack's tokens: what is held under these numbers. y: what came out of it, if it is the last layer."""

    held: Held
    numbers: Tensor
    y: Tensor | None


class Remembered:
    """Of one decoder."""

    def __init__(self) -> None:
        self.layers: list[Held] = []
        self.last = torch.empty(0)
        self.stamp: Stamp = ()  # of the weights; empty: nothing is kept
        self.count = self.room = self.asked = 0
        self.told: object = None  # for the kernels: where each layer's begin
        self.notes: list[Note] = []  # tokens that are not yet in `number`
        self.number: dict[tuple[int, int], int] = {}
        self.same: dict[int, int] = {}  # of tokens that were computed again: the number under which they are known
        self.lent: WeakSet[Recalled] = WeakSet()  # what a backward may still ask for
        self.lock = Lock()  # a sampler may begin anew in another thread while the trainer recalls

    def __reduce__(self) -> tuple[type[Remembered], tuple[()]]:
        return Remembered, ()  # a copy of the model has computed nothing

    def begin(self, decoder: nn.Module, shape: compiled.Shape, layers: int, tokens: int) -> bool:
        """So many tokens may come. False where there is no room for them."""
        if self.stamp == stamp_of(decoder) and self.count + tokens <= self.room:
            return True  # another call with the same weights
        self.forget()
        hidden, found = shape.hidden, (shape.heads + 2 * shape.kv_heads) * shape.width
        widths = (hidden, found, shape.heads * shape.width, hidden, 2 * shape.inner)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // SHARE
        if 4 * tokens * (layers * sum(widths) + hidden) > memory:
            return False
        with self.lock:
            if tokens > self.room or len(self.lent):
                # more, for a next call like this one: pages that are never written cost nothing
                self.room = max(self.room, tokens + tokens // 4)
                self.layers = [Held(*(torch.empty(self.room, width) for width in widths)) for _ in range(layers)]
                self.last = torch.empty(self.room, hidden)
                at = [compiled.KeptAt(*(part.data_ptr() for part in held.all())) for held in self.layers]
                self.told = (compiled.KeptAt * layers)(*at)
            self.stamp = stamp_of(decoder)
        return True

    def forget(self) -> None:
        with self.lock:
            self.stamp, self.count, self.notes, self.number, self.same = (), 0, [], {}, {}

    def take(self, number: int) -> int | None:
        """Where the numbers of so many tokens go; None where they are not kept."""
        if not self.stamp or self.count + number > self.room:
            return None
        self.count += number
        return self.count - number

    def note(self, before: Numbers, tokens: Numbers, first: int) -> None:
        """These tokens, whose numbers begin at `first`, each come after the one of that number."""
        self.notes.append((before, tokens, first))

    def note_rows(self, tokens: Numbers, starts: Numbers, first: int) -> list[int]:
        """The same for whole rows, end to end, that begin at `starts`; the number of the last token of each."""
        before = np.arange(first - 1, first + len(tokens) - 1)
        before[starts[:-1]] = NOBODY
        self.note(before, tokens, first)
        return (first + starts[1:] - 1).tolist()  # type: ignore[no-any-return]

    def _look_at_notes(self) -> None:
        """Tokens get their numbers; one that is known under another keeps that one, and so do those that follow it."""
        while self.notes:
            befores, tokens, first = self.notes.pop(0)
            for i, (before, token) in enumerate(zip(befores.tolist(), tokens.tolist(), strict=True), first):
                known = self.number.setdefault((self.same.get(before, before), token), i)
                if known != i:
                    self.same[i] = known

    def recall(self, decoder: nn.Module, tokens: Tensor, tree: Tree) -> list[Recalled] | None:
        """What each layer's forward has made of a pack's tokens. None where some are not here."""
        with self.lock:
            if self.stamp != stamp_of(decoder):
                return None
            self._look_at_notes()
            numbers = self._find(tokens, tree)
            self.asked += numbers is not None
            if numbers is None or self.asked % CHECKED == 1:
                return None
            ys = [*[None] * (len(self.layers) - 1), self.last.index_select(0, numbers)]
            recalled = [Recalled(held, numbers, y) for held, y in zip(self.layers, ys, strict=True)]
            self.lent.update(recalled)
            return recalled

    def _find(self, tokens: Tensor, tree: Tree) -> Tensor | None:
        """[N]: the numbers of a pack's tokens."""
        said, found, known = tokens.tolist(), [NOBODY] * len(tokens), self.number
        for first, end, parent in tree.stretches.tolist():
            before = found[tree.stretches[parent][1] - 1] if parent >= 0 else NOBODY
            for at in range(first, end):
                number = known.get((before, said[at]))
                if number is None:
                    return None
                before = found[at] = number
        return torch.tensor(found)


def stamp_of(decoder: nn.Module) -> Stamp:
    """Changes with every change of a weight, as cast/native/laid.py knows it: where it lies, and how often it was changed in place."""
    return tuple((p.data_ptr(), p._version) for p in decoder.parameters())
