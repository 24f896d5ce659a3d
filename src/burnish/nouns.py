"""The nouns every room shares: Task, Turn, Trace, Group, Clock, and what a verifier says.

A trace is a path of turns. Every token belongs to a turn, every turn has one author, so every rule of who is trained
on what is a rule about authors. A token's behaviour log-prob and weights version are recorded when it is born and never
recomputed. A stream is one number per token of a trace; a stream that nobody assigned is absent, which is not zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

Message = Mapping[str, str]  # {"role": ..., "content": ...}


@dataclass(frozen=True)
class Task:
    """Something to answer.

    kind    what sort of thing it is ("question", "demo", "pair", "game", "past"); rooms do not branch on it
    prompt  chat messages, or plain text
    given   what came with it: "answer", "demo", "chosen", "rejected", "env", any other column
    key     its identity: two tasks with the same key are the same problem
    """

    kind: str
    prompt: tuple[Message, ...] | str
    given: Mapping[str, Any]
    key: str


@dataclass(frozen=True)
class Verdict:
    """What a verifier says of one reply: a score in [0, 1], whether it counts as correct, and why not.

    failed: the verifier itself gave no answer, so that the score says nothing of the reply
    """

    score: float
    correct: bool
    reason: str = ""
    failed: bool = False


@dataclass(frozen=True, eq=False)
class Turn:
    """Tokens written by one author, with the log-prob that each had and the weights version that wrote it.

    Authors: "task" wrote the prompt, "policy" the samples, "demo" demonstrations, "env" an environment's replies;
    a guide, a past policy or a seat in a game are other names. `parent` is the turn before it: turns form trees.
    """

    tokens: Tensor  # [t] int64
    author: str
    logp: Tensor | None = None  # [t] float32, behaviour log-probs; None where the author's are not known
    versions: Tensor | None = None  # [t] int64, the version of the weights that wrote each; None where no weights did
    parent: Turn | None = None

    def __len__(self) -> int:
        return self.tokens.shape[0]  # len() of a tensor is ten times as slow, and this is asked for all the time

    def first(self, n: int) -> Turn:
        """The turn as it was after its first n tokens."""
        logp, versions = (None if x is None else x[:n] for x in (self.logp, self.versions))
        return replace(self, tokens=self.tokens[:n], logp=logp, versions=versions)

    def followed_by(self, more: Turn) -> Turn:
        """The same turn, longer: `more` was written after it by the same author, perhaps with other weights."""
        assert self.author == more.author, f"{more.author!r} cannot go on with what {self.author!r} began"
        logp = None if self.logp is None or more.logp is None else torch.cat([self.logp, more.logp])
        known = self.versions is not None and more.versions is not None
        versions = torch.cat([self.versions, more.versions]) if known else None  # type: ignore[list-item]
        return replace(self, tokens=torch.cat([self.tokens, more.tokens]), logp=logp, versions=versions)

    def runs(self) -> list[tuple[int, int]]:
        """The versions run by run: (version, how many tokens in a row it wrote)."""
        if self.versions is None:
            return []
        versions, counts = torch.unique_consecutive(self.versions, return_counts=True)
        return list(zip(versions.tolist(), counts.tolist(), strict=True))


@dataclass(eq=False)
class Trace:
    """A path of turns, what it scored, and its per-token streams.

    scores       name -> number, for the whole trace
    turn_scores  name -> one number per turn (nan where the turn earned none)
    streams      name -> tensor [T] over all tokens of the trace; entry t speaks of token t
    tags, note   labels ("greedy", "hybrid") and facts (why generation stopped, what the verifier said)
    """

    turns: tuple[Turn, ...]
    index: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    turn_scores: dict[str, list[float]] = field(default_factory=dict)
    streams: dict[str, Tensor] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    note: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum([turn.tokens.shape[0] for turn in self.turns])

    @property
    def tokens(self) -> Tensor:
        return torch.cat([turn.tokens for turn in self.turns])

    def spans(self) -> Iterator[tuple[Turn, int, int]]:
        """Each turn with the half-open range of token positions it covers."""
        start = 0
        for turn in self.turns:
            end = start + len(turn)
            yield turn, start, end
            start = end

    def by(self, *authors: str) -> Tensor:
        """[T] bool: the tokens these authors wrote."""
        mask = torch.zeros(len(self), dtype=torch.bool)
        for turn, start, end in self.spans():
            if turn.author in authors:
                mask[start:end] = True
        return mask

    def authors(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(turn.author for turn in self.turns))


@dataclass(eq=False)
class Group:
    """Traces that share a task, with the pairs (better, worse) and lists (best first) that `select` made of them."""

    task: Task
    traces: list[Trace]
    pairs: list[tuple[int, int]] | None = None
    lists: list[tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Clock:
    """Time and the root of all randomness: step `step` of `of`; `tick` counts repeats of a phase inside a step."""

    step: int
    of: int
    seed: int = 0
    tick: int = 0

    @property
    def fraction(self) -> float:
        """How much of the run lies behind: 0 at the first step, 1 at the last."""
        return self.step / max(1, self.of - 1)

    def at(self, *, tick: int) -> Clock:
        return replace(self, tick=tick)
