"""Candidates that differ enough to learn from."""

from __future__ import annotations

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group


@supplies("tag:apart")
def apart(least: float, *, score: str) -> Part:
    """Of equal replies only the first stays; groups whose best and worst score less than `least` apart are dropped.

    What stays carries the tag "apart".
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        kept = []
        for group in groups:
            distinct = {tuple(trace.tokens.tolist()): trace for trace in reversed(group.traces)}
            group.traces = [trace for trace in group.traces if distinct[tuple(trace.tokens.tolist())] is trace]
            scores = [trace.scores[score] for trace in group.traces]
            if max(scores) - min(scores) >= least:
                kept.append(group)
            for trace in group.traces:
                trace.tags |= {"apart"}
        step.notes.add("dropped/too_close", len(groups) - len(kept), len(groups))
        return kept

    return Part(
        name=f"apart({least:g})",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"tag:apart"}),
        updates=frozenset({"tokens:policy"}),
    )
