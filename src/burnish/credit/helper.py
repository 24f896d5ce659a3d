"""Labels of states for a helper that decides whether to ask for help."""

from __future__ import annotations

import torch

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace


@supplies("stream:label")
def asks_for_help() -> Part:
    """Stream "label" is 1 at the last token of a state where help is to be asked for, 0 where not."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        asks = float(group.task.given["asks"])
        last = torch.arange(len(trace)) == len(trace) - 1
        trace.streams["label"] = torch.where(last, asks, torch.nan)
        step.notes.add("help_labels", asks)

    return per_trace(
        write,
        name="asks_for_help",
        reads=frozenset({"tokens:task", "given:asks"}),
        writes=frozenset({"stream:label"}),
    )
