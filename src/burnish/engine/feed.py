"""Requests that arrive while others are decoded: an episode whose environment has answered goes on at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from burnish.engine.request import OnSample, Request, Sample


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


def in_rounds(
    generate: Callable[[list[Request], OnSample], list[Sample]],
    requests: list[Request],
    on_sample: OnSample | None,
    feed: Feed,
) -> list[Sample]:
    """For an engine that admits no requests during a call: those that have arrived, in one call after another."""
    samples: list[Sample] = []

    def told(i: int, sample: Sample) -> None:
        if on_sample is not None:
            on_sample(first + i, sample)

    while requests or (requests := feed.take(wait=True)):
        first = len(samples)
        samples += generate(requests, told)
        requests = feed.take(wait=False)
    return samples
