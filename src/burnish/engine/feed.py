"""Requests that arrive while others are decoded: an episode whose environment has answered goes on at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from burnish.engine.request import Request


class Feed(Protocol):
    """Where an engine gets requests beyond those of the call. They are numbered on in the order in which they arrive.

    rows  how many requests are under way together, at most; more than that wait for a slot
    """

    @property
    def rows(self) -> int: ...

    def take(self, wait: bool) -> list[Request]:
        """The requests that have arrived. wait: until there is one; none then means that no more will come."""
        ...


@dataclass(frozen=True)
class Ahead:
    """What a call of the engine has room for beyond its own requests: so many rows, prompts and replies so long."""

    rows: int
    prompt: int
    reply: int

    @classmethod
    def of(cls, requests: list[Request], rows: int, context: int, earlier: int = 0) -> Ahead:
        """Room for prompts of twice the length, or as long as those of earlier calls (`earlier`). A longer one waits
        until the running rows have ended.
        """
        longest, reply = max(r.prompt.shape[0] for r in requests), max(r.max_new for r in requests)
        return cls(max(rows, len(requests)), min(max(2 * longest + reply, earlier), context - 1), reply)
