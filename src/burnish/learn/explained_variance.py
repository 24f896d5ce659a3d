"""How well a critic predicts its returns, measured on the values before the updates of a step."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from burnish.core.step import Step
from burnish.core.types import Group
from burnish.learn.batch import stream
from burnish.learn.maths.value import explained_variance
from burnish.learn.term import Term


def note_explained(groups: list[Group], terms: Iterable[Term], step: Step) -> None:
    """Note TERM/explained_variance of the terms that move values (stream "value") to returns (stream "returns").

    Over the tokens that the term claims; of a critic with several outputs the mean over these.
    """
    for term in terms:
        if {"value", "returns"} <= set(term.streams):
            values, returns = (_claimed(groups, term, name) for name in ("value", "returns"))
            for value, wanted in zip(values.T, returns.T, strict=True):
                share = explained_variance(value, wanted)
                if share is not None:
                    step.notes.add(f"{term.name}/explained_variance", share)


def _claimed(groups: list[Group], term: Term, name: str) -> Tensor:
    """[N, k]: a stream at the tokens that a term claims."""
    values = [torch.zeros(0, 1)]
    for trace in (trace for group in groups for trace in group.traces):
        mask = trace.streams[f"claim:{term.name}"]
        if bool(mask.any()):
            some = stream(term, trace, name)[mask]
            values.append(some.reshape(len(some), -1))
    return torch.cat(values[1:] or values)
