"""Passes that all ranks make together, though each has other ones to make (`--shard full`).

Where weights are divided, a pass exchanges them, and an exchange needs all ranks. But ranks that work on portions of
their own have different numbers of passes, by different models. So they take turns: before each pass, every rank says
which one it wants to make, the lowest number of all is made, and a rank that wants another one goes along: it makes the
exchanges of that pass with a token of its own and throws the result away. A rank whose portion is done goes along until
all are done. So no rank waits for an exchange that another one never makes.
"""

from __future__ import annotations

from collections.abc import Callable

DONE = 1 << 30  # what a rank wants whose portion is done


class Turns:
    """The turns of one run. lowest: the lowest of what every rank passes, which all ranks call together.

    kinds: by number, how a rank goes along with a pass that it does not want itself
    """

    def __init__(self, lowest: Callable[[int], int]) -> None:
        self.lowest = lowest
        self.kinds: dict[int, Callable[[], None]] = {}
        self.lent: list[Callable[[], None]] = []  # each gives memory back before a pass that needs it

    def register(self, rank_of_kind: int, along: Callable[[], None]) -> int:
        """The number of a new kind of pass: those of a lower `rank_of_kind` come first."""
        number = rank_of_kind * 10_000 + len(self.kinds)
        self.kinds[number] = along
        return number

    def take(self, wanted: int) -> None:
        """Return when it is the turn of the wanted pass, having gone along with those before it."""
        while (number := self.lowest(wanted)) != wanted:
            self.kinds[number]()

    def make_room(self) -> None:
        """Have every model free what it holds for a while."""
        for free in self.lent:
            free()

    def leave(self) -> None:
        """Go along until every rank is done with its portion."""
        while (number := self.lowest(DONE)) != DONE:
            self.kinds[number]()
