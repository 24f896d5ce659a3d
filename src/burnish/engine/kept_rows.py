"""Prefix caching across turns: the KV cache of a finished row stays in its slot for the next turn of its episode.

The prompt of the next turn is the prompt of the last one, what was sampled, and what the environment said. Only the
last part is new to the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from burnish.engine.request import Prompt, Request
from burnish.media.ids import media_in

MOST_NEW = 256  # a longer rest is prefilled with all that is before it: each of its tokens would read the row anew


@dataclass
class KeptRow:
    """root: the prompt in the pool before the slot's tokens. tokens: of root and slot; 0 while the sample is unread."""

    slot: int
    root: Prompt
    tokens: int = 0


@dataclass(frozen=True)
class Continuation:
    """A request that goes on in the slot of a kept row.

    new    the tokens that are new to the model: the last that was sampled, and what follows it
    begin  how many tokens the slot holds, the new ones included, before the reply
    """

    slot: int
    root: Prompt
    new: Tensor
    begin: int


class KeptRows:
    """By the number of the request, oldest first. capacity: how many tokens a slot holds."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.rows: dict[int, KeptRow] = {}

    def __len__(self) -> int:
        return len(self.rows)

    def keep(self, number: int, slot: int, root: Prompt) -> None:
        """A row has finished; its slot and its root are not to be given to others."""
        self.rows[number] = KeptRow(slot, root)

    def read(self, number: int, tokens: int) -> None:
        """Its sample is known: prompt and sample have so many tokens."""
        if number in self.rows:
            self.rows[number].tokens = tokens

    def slots(self) -> set[int]:
        return {row.slot for row in self.rows.values()}

    def oldest(self) -> KeptRow:
        """The row that has waited longest, which is kept no longer."""
        return self.rows.pop(next(iter(self.rows)))

    def go_on(self, request: Request, tokens_held: Callable[[int], int]) -> Continuation | KeptRow | None:
        """How a request goes on after a kept row, which is kept no longer. The row itself where it cannot; None where
        there is none.

        tokens_held: how many tokens of a root of some length lie in the slot
        """
        row = None if request.after is None else self.rows.pop(request.after, None)
        if row is None:
            return None
        length = request.prompt.shape[0]
        begin, computed = length - row.root.length, row.tokens - 1  # the last sampled token was never an input
        fits = tokens_held(row.root.length) + begin + request.max_new <= self.capacity
        seen = media_in(request.prompt[computed:])  # new pictures are read in a pass over prompts
        if not fits or seen or computed < row.root.length or length - computed > MOST_NEW:
            return row
        return Continuation(row.slot, row.root, request.prompt[computed:], begin)
