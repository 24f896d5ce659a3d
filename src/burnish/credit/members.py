"""Which tokens a term claims: a rule about authors."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from burnish.constant import constant
from burnish.nouns import Group, Trace
from burnish.parts import Part, supplies
from burnish.step import Step


@supplies("member:*")
def member(
    term: str,
    *authors: str,
    tag: str | None = None,
    at: str = "all",
    top: tuple[str, float] | None = None,
    where: Callable[[Trace], Tensor | bool] | None = None,
    needs: tuple[str, ...] = (),
) -> Part:
    """The term claims the tokens that these authors wrote.

    tag  only on traces with that tag
    at   "all" tokens of their turns, the "first" or the "last" of each turn, or the "end": the last token of the trace
    top  (stream, share): of these tokens, only the share with the largest values of the stream, pooled over the batch
    where  a function from a trace to [T] bool (or one bool): of these tokens, only those; `needs` names what it reads
    A turn that several traces share is claimed once. A second member() of the same term adds its tokens.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        claims: list[tuple[Trace, Tensor]] = []
        for group in groups:
            seen: set[int] = set()
            for trace in group.traces:
                mask = (
                    _claim(trace, authors, at, seen)
                    if tag is None or tag in trace.tags
                    else torch.zeros(len(trace), dtype=torch.bool)
                )
                claims.append((trace, mask & where(trace) if where is not None else mask))
        if top is not None:
            _keep_top(claims, *top)
        for trace, mask in claims:
            earlier = trace.streams.get(f"member:{term}")
            trace.streams[f"member:{term}"] = mask if earlier is None else earlier | mask
        return groups

    name = f"member:{term}"
    reads = (
        {f"tokens:{author}" for author in authors}
        | ({f"tag:{tag}"} if tag else set())
        | ({f"stream:{top[0]}"} if top else set())
        | set(needs)
    )
    return Part(
        name=f"member({term}, {', '.join(authors)})",
        call=call,
        reads=frozenset(reads),
        writes=frozenset({name}),
        updates=frozenset({name}),
    )


def _claim(trace: Trace, authors: tuple[str, ...], at: str, seen: set[int]) -> Tensor:
    parts: list[Tensor] = []
    places: list[int] = []
    start = 0
    for turn in trace.turns:
        size = len(turn)
        mine = turn.author in authors and id(turn) not in seen and size > 0
        if mine:
            seen.add(id(turn))
            places.append(start if at == "first" else start + size - 1)
        parts.append(constant(mine and at == "all", size, torch.bool))
        start += size
    mask = torch.cat(parts)
    if at != "all" and places:
        mask[-1 if at == "end" else places] = True
    return mask


def _keep_top(claims: list[tuple[Trace, Tensor]], stream: str, share: float) -> None:
    """Keep ceil(share x n) of the n claimed tokens: those with the largest values, over all traces together."""
    values = torch.cat([trace.streams[stream][mask] for trace, mask in claims]) if claims else torch.zeros(0)
    drop = int((1 - share) * len(values))
    order = torch.argsort(values, stable=True)
    kept = torch.ones(len(values), dtype=torch.bool)
    kept[order[:drop]] = False
    for (_, mask), keep in zip(claims, kept.split([int(mask.sum()) for _, mask in claims]), strict=True):
        mask[mask.clone()] = keep
