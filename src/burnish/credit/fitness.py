"""What a candidate of a population is worth."""

from __future__ import annotations

import torch

from burnish.core.parts import Part, supplies
from burnish.core.step import Step
from burnish.core.types import Group
from burnish.learn.evolution import CANDIDATE, Population


@supplies("stream:fitness")
def fitness(population: Population, *, score: str = "reward") -> Part:
    """Stream "fitness": the mean score of all replies that the same candidate wrote, over the whole batch."""

    def call(groups: list[Group], step: Step) -> list[Group]:
        traces = [trace for group in groups for trace in group.traces]
        scores: dict[int, list[float]] = {}
        for trace in traces:
            scores.setdefault(trace.note[CANDIDATE], []).append(trace.scores[score])
        means = {candidate: sum(own) / len(own) for candidate, own in scores.items()}
        for trace in traces:
            trace.streams["fitness"] = torch.full((len(trace),), means[trace.note[CANDIDATE]], dtype=torch.float64)
        return groups

    return Part(
        name="fitness",
        call=call,
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"stream:fitness"}),
        state=(population,),  # learning moves it, and sampling needs it moved
    )
