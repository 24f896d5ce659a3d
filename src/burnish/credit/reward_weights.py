"""Weights of replies by their rewards."""

from __future__ import annotations

import torch

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace


@supplies("stream:weight")
def reward_weights(tau: float, score: str = "reward") -> Part:
    """Stream "weight": exp(r / tau) of each trace, on all its tokens (RISE, arXiv 2407.18219); not normalised."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        weight = torch.tensor(trace.scores[score] / tau).exp()
        trace.streams["weight"] = weight.expand(len(trace)).clone()

    return per_trace(
        write,
        name=f"reward_weights({tau:g})",
        reads=frozenset({f"score:{score}"}),
        writes=frozenset({"stream:weight"}),
    )
