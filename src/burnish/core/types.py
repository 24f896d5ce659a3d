"""The types that all stages share: Task, Turn, Trace, Group, Clock, Verdict.

A trace is a path of turns. Every token belongs to a turn and every turn has one author, so which tokens a term trains
on is a rule about authors. The behaviour log-prob and weight version of a token are recorded when it is sampled and
never recomputed. A stream has one number per token of a trace; a stream that no part has written is absent, not zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from burnish.core.canvas import Canvas as Canvas
from burnish.core.canvas import Chain as Chain
from burnish.core.task import Message as Message
from burnish.core.task import Task as Task
from burnish.core.task import Verdict as Verdict


@dataclass(frozen=True)
class Sampling:
    """How a turn was sampled. temperature 0 is greedy; top_k 0, top_p 1, min_p 0 and repetition_penalty 1 are off.

    repetition_penalty  divides the positive logits of tokens that the prompt or the reply has already, and multiplies
                        their negative ones (CTRL, arXiv 1909.05858)
    as_drawn  the recorded log-probs are of the very distribution that a token was drawn from, after the penalty and
              among the tokens that top_k, top_p and min_p allow, which are kept (`Turn.allowed`); off: of the whole one
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    as_drawn: bool = False

    @property
    def truncated(self) -> bool:
        """Whether some tokens cannot be drawn."""
        return bool(self.top_k) or self.top_p < 1 or self.min_p > 0

    @property
    def logp_temperature(self) -> float:
        """The temperature of the log-probs that are recorded with its tokens: 1 where it is greedy."""
        return self.temperature or 1.0

    def named(self) -> dict[str, Any]:
        """The settings by name, as a request takes them."""
        return dict(vars(self))


@dataclass(frozen=True, eq=False)
class Allowed:
    """The tokens among which each token of a turn was drawn, laid end to end: ids [m], and how many for each [t]."""

    ids: Tensor  # int32
    sizes: Tensor  # int64

    def first(self, n: int) -> Allowed:
        """Those of the first n tokens."""
        return Allowed(self.ids[: int(self.sizes[:n].sum())], self.sizes[:n])

    def __add__(self, more: Allowed) -> Allowed:
        return Allowed(torch.cat([self.ids, more.ids]), torch.cat([self.sizes, more.sizes]))

    def by_token(self) -> tuple[Tensor, ...]:
        """The ids that each token was drawn among."""
        return tuple(self.ids.split(self.sizes.tolist()))


@dataclass(frozen=True, eq=False)
class Turn:
    """Tokens written by one author, with the behaviour log-prob and the weight version of each.

    Authors: "task" wrote the prompt, "policy" the samples, "demo" demonstrations, "env" an environment's replies;
    guides, past policies and seats in a game have other names. `parent` is the turn before it: turns form trees.
    `settings` say how it was sampled; log-probs that are compared with its own are taken at its temperature.
    `content` is a hash (63 bits) of what the model reads here besides the tokens (an image behind placeholders).
    `canvas` says how the tokens came about, where they were not written from left to right.
    """

    tokens: Tensor  # [t] int64
    author: str
    logp: Tensor | None = None  # [t] float32, behaviour log-probs; None if unknown
    versions: Tensor | None = None  # [t] int64, version of the weights that sampled each token; None if none did
    parent: Turn | None = None
    settings: Sampling | None = None  # None where the tokens were given, not sampled
    content: int | None = None  # None: the model reads the tokens and nothing else
    allowed: Allowed | None = None  # None: the log-probs are among all tokens
    canvas: Canvas | Chain | None = None  # None: from left to right, or not known

    def __len__(self) -> int:
        return self.tokens.shape[0]  # len() of a tensor is ten times slower, and this is called very often

    def first(self, n: int) -> Turn:
        """The turn cut to its first n tokens."""
        logp, versions = (None if x is None else x[:n] for x in (self.logp, self.versions))
        allowed = None if self.allowed is None else self.allowed.first(n)
        return replace(self, tokens=self.tokens[:n], logp=logp, versions=versions, allowed=allowed)

    def followed_by(self, more: Turn) -> Turn:
        """This turn continued by `more`, written by the same author, possibly with other weights."""
        if self.canvas is not None or more.canvas is not None:
            raise ValueError("a model that does not write from left to right writes whole replies; leave out --chunk")
        assert self.author == more.author, f"{more.author!r} cannot go on with what {self.author!r} began"
        logp = None if self.logp is None or more.logp is None else torch.cat([self.logp, more.logp])
        versions = None
        if self.versions is not None and more.versions is not None:
            versions = torch.cat([self.versions, more.versions])
        allowed = None if self.allowed is None or more.allowed is None else self.allowed + more.allowed
        tokens = torch.cat([self.tokens, more.tokens])
        return replace(self, tokens=tokens, logp=logp, versions=versions, allowed=allowed)

    @property
    def input_keys(self) -> Tensor:
        """[t] int64: what the model reads at each token, as a number. Equal keys after equal keys are the same input.

        They are the tokens themselves; where the turn has other content, its hash is added to each (modulo 2^64).
        """
        return self.tokens if self.content is None else self.tokens + self.content

    @property
    def logp_temperature(self) -> float:
        """The temperature at which log-probs of its tokens are taken; 1 where it was not sampled."""
        return 1.0 if self.settings is None else self.settings.logp_temperature

    @property
    def penalty(self) -> float:
        """The repetition penalty that log-probs of its tokens are taken under; 1 is none."""
        return self.settings.repetition_penalty if self.settings is not None and self.settings.as_drawn else 1.0

    def runs(self) -> list[tuple[int, int]]:
        """The versions, run-length encoded: (version, number of consecutive tokens)."""
        if self.versions is None:
            return []
        versions, counts = torch.unique_consecutive(self.versions, return_counts=True)
        return list(zip(versions.tolist(), counts.tolist(), strict=True))


def input_keys(turns: Sequence[Turn]) -> Tensor | None:
    """The input keys of consecutive turns [T]; None where they are the tokens.

    Whatever shares a prefix between rows (packing, KV cache, activation cache) shares it by these keys.
    """
    if all(turn.content is None for turn in turns):
        return None
    return torch.cat([turn.input_keys for turn in turns])


def keys_of_rows(rows: Sequence[Sequence[Turn]]) -> list[np.ndarray] | None:
    """The input keys of several rows of turns; None where the tokens of all are their keys."""
    if all(turn.content is None for turns in rows for turn in turns):
        return None
    return [torch.cat([turn.input_keys for turn in turns]).numpy() for turns in rows]


class TraceId:
    """Which sample a trace is of. Equal to itself alone; a copy of it is itself, so that copies of a trace share it."""

    __slots__ = ()

    def __copy__(self) -> TraceId:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> TraceId:
        return self


@dataclass(eq=False)
class Trace:
    """A path of turns with its scores and per-token streams.

    scores       name -> number, for the whole trace
    turn_scores  name -> one number per turn (NaN for a turn without one)
    streams      name -> tensor [T]: one entry per token of the trace
    tags, note   labels ("greedy", "hybrid") and facts (why generation stopped, the verifier's reason)
    id           the sample's identity: `replace` and copies keep it
    """

    turns: tuple[Turn, ...]
    index: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    turn_scores: dict[str, list[float]] = field(default_factory=dict)
    streams: dict[str, Tensor] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()
    note: dict[str, Any] = field(default_factory=dict)
    id: TraceId = field(default_factory=TraceId, repr=False)

    def __len__(self) -> int:
        return sum([turn.tokens.shape[0] for turn in self.turns])

    @property
    def tokens(self) -> Tensor:
        return torch.cat([turn.tokens for turn in self.turns])

    def spans(self) -> Iterator[tuple[Turn, int, int]]:
        """Each turn with its half-open range of token positions."""
        start = 0
        for turn in self.turns:
            end = start + len(turn)
            yield turn, start, end
            start = end

    def by(self, *authors: str) -> Tensor:
        """[T] bool: the tokens written by these authors."""
        mask = torch.zeros(len(self), dtype=torch.bool)
        for turn, start, end in self.spans():
            if turn.author in authors:
                mask[start:end] = True
        return mask

    def authors(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(turn.author for turn in self.turns))


def spans_once(traces: Sequence[Trace], authors: tuple[str, ...]) -> list[list[tuple[int, int]]]:
    """Of each trace, the half-open token ranges of the turns that these authors wrote, empty turns left out.

    A turn that several traces share (branches of a tree) counts in the first of them alone.
    """
    seen: set[int] = set()
    ranges: list[list[tuple[int, int]]] = []
    for trace in traces:
        mine = [
            (turn, start, end)
            for turn, start, end in trace.spans()
            if turn.author in authors and id(turn) not in seen and end > start
        ]
        seen |= {id(turn) for turn, _, _ in mine}
        ranges.append([(start, end) for _, start, end in mine])
    return ranges


@dataclass(frozen=True)
class Drawn:
    """How masked tokens [N], trace after trace, were drawn: what their log-probs are taken under.

    temperature  one number where all are the same
    penalty      the repetition penalty of each; None where none has one
    allowed      for each, the ids that it was drawn among, or None for all; None where no token has any
    canvases     for each trace, the turns that were not written from left to right: begin, end and canvas of each
    """

    temperature: float | np.ndarray = 1.0
    penalty: np.ndarray | None = None
    allowed: list[Tensor | None] | None = None
    canvases: list[list[tuple[int, int, Canvas | Chain]]] | None = None


def canvases_of(traces: Sequence[Trace]) -> list[list[tuple[int, int, Canvas | Chain]]] | None:
    """Of each trace, the turns that were not written from left to right; None where all were."""
    if all(turn.canvas is None for trace in traces for turn in trace.turns):
        return None
    return [[(a, b, turn.canvas) for turn, a, b in trace.spans() if turn.canvas is not None] for trace in traces]


def at_temperature(traces: Sequence[Trace], temperature: float) -> Drawn | float:
    """All tokens of traces at one temperature, however they were drawn."""
    canvases = canvases_of(traces)
    return temperature if canvases is None else Drawn(temperature, canvases=canvases)


def how_drawn(traces: Sequence[Trace], masks: Sequence[Tensor], given_at: float = 1.0) -> Drawn:
    """How the masked tokens of traces were drawn. given_at: the temperature of tokens that were given, not sampled."""
    turns = [turn for trace in traces for turn in trace.turns]
    heats = [given_at if turn.settings is None else turn.logp_temperature for turn in turns]
    changed = any(turn.allowed is not None or turn.penalty != 1.0 for turn in turns)
    canvases = canvases_of(traces)
    if not changed and all(heat == 1.0 for heat in heats):
        return Drawn(canvases=canvases)
    where = np.concatenate([mask.numpy() for mask in masks])
    sizes = [len(turn) for turn in turns]
    temperatures = np.repeat(heats, sizes)[where]
    same = not len(temperatures) or (temperatures == temperatures[0]).all()
    heat: float | np.ndarray = temperatures
    if same:
        heat = float(temperatures[0]) if len(temperatures) else 1.0
    if not changed:
        return Drawn(heat, canvases=canvases)
    penalties = np.repeat([turn.penalty for turn in turns], sizes)[where]
    among: list[Tensor | None] = []
    for turn in turns:
        among += [None] * len(turn) if turn.allowed is None else turn.allowed.by_token()
    wanted = [among[i] for i in np.flatnonzero(where)]
    return Drawn(
        heat,
        penalties if (penalties != 1.0).any() else None,
        wanted if any(ids is not None for ids in wanted) else None,
        canvases,
    )


@dataclass(eq=False)
class Group:
    """Traces that share a task; `select` may add pairs (better, worse) and lists (best first) of trace indices."""

    task: Task
    traces: list[Trace]
    pairs: list[tuple[int, int]] | None = None
    lists: list[tuple[int, ...]] | None = None


@dataclass(frozen=True)
class Clock:
    """Time and seed: step `step` of `of`; `tick` counts the passes of a phase inside a step."""

    step: int
    of: int
    seed: int = 0
    tick: int = 0

    @property
    def fraction(self) -> float:
        """Progress of the run: 0 at the first step, 1 at the last."""
        return self.step / max(1, self.of - 1)

    def at(self, *, tick: int) -> Clock:
        return replace(self, tick=tick)
