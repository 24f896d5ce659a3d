"""Which tokens a term trains on, where `Term(on=AUTHOR)` does not say enough: by tag, position, stream or rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace, spans_once

Positions = Literal["all", "first", "last", "end"]


@supplies("claim:*")
def claim(
    term: str,
    *authors: str,
    tag: str | None = None,
    positions: Positions = "all",
    top: tuple[str, float] | None = None,
    where: Callable[[Trace], Tensor | bool] | None = None,
    needs: tuple[str, ...] = (),
) -> Part:
    """The term trains on these tokens of these authors, whatever its `on` says.

    tag        only on traces with that tag
    positions  "all" tokens of their turns, the "first" or the "last" of each turn, or the "end": the trace's last token
    top        (stream, share): of these tokens, only the share with the largest values of the stream, pooled over the
               batch
    where      a function from a trace to [T] bool (or one bool): of these tokens, only those; `needs` names what it
               reads
    A turn that several traces share is claimed once. A second claim() of the same term adds its tokens.
    """
    if positions not in get_args(Positions):
        raise ValueError(f"claim({term!r}) has positions={positions!r}; choose one of {', '.join(get_args(Positions))}")

    def call(groups: list[Group], step: Step) -> list[Group]:
        claims: list[tuple[Trace, Tensor]] = []
        for group in groups:
            tagged = [trace for trace in group.traces if tag is None or tag in trace.tags]
            spans = {id(t): span for t, span in zip(tagged, spans_once(tagged, authors), strict=True)}
            for trace in group.traces:
                mask = mask_at(len(trace), spans.get(id(trace), []), positions)
                claims.append((trace, mask & where(trace) if where is not None else mask))
        if top is not None:
            _keep_top(claims, *top)
        for trace, mask in claims:
            earlier = trace.streams.get(name)
            trace.streams[name] = mask if earlier is None else earlier | mask
        return groups

    name = f"claim:{term}"
    reads = (
        {f"tokens:{author}" for author in authors}
        | ({f"tag:{tag}"} if tag else set())
        | ({f"stream:{top[0]}"} if top else set())
        | set(needs)
    )
    return Part(
        name=f"claim({term}, {', '.join(authors)})",
        call=call,
        reads=frozenset(reads),
        writes=frozenset({name}),
        updates=frozenset({name}),
    )


def mask_at(length: int, spans: list[tuple[int, int]], positions: Positions) -> Tensor:
    """[T] bool: the spans' tokens at these positions."""
    mask = torch.zeros(length, dtype=torch.bool)
    for start, end in spans:
        first, last = {
            "all": (start, end),
            "first": (start, start + 1),
            "last": (end - 1, end),
            "end": (length - 1, length),
        }[positions]
        mask[first:last] = True
    return mask


def _keep_top(claims: list[tuple[Trace, Tensor]], stream: str, share: float) -> None:
    """Keep ceil(share x n) of the n claimed tokens: those with the largest values, over all traces together."""
    values = torch.cat([trace.streams[stream][mask] for trace, mask in claims]) if claims else torch.zeros(0)
    drop = int((1 - share) * len(values))
    order = torch.argsort(values, stable=True)
    claimed = torch.ones(len(values), dtype=torch.bool)
    claimed[order[:drop]] = False
    for (_, mask), keep in zip(claims, claimed.split([int(mask.sum()) for _, mask in claims]), strict=True):
        mask[mask.clone()] = keep


@supplies("claim:*")
def alternating(term: str, turn: int, of: int, *, author: str = "policy") -> Part:
    """The term trains on the author's tokens of every `of`-th group: group i of step k, where i + k = turn modulo `of`.

    For critics that start from the same weights: on the same data they would stay equal, and a minimum over them would
    be any of them. Double Q-learning (van Hasselt, 2010) also gives each update to one of two estimates.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for i, group in enumerate(groups):
            due = (i + step.clock.step) % of == turn
            for trace in group.traces:
                trace.streams[f"claim:{term}"] = trace.by(author) if due else torch.zeros(len(trace), dtype=torch.bool)
        return groups

    return Part(
        name=f"alternating({term}, {turn} of {of})",
        call=call,
        reads=frozenset({f"tokens:{author}"}),
        writes=frozenset({f"claim:{term}"}),
    )
