"""Numbers that preference losses read from the whole batch, from other models or from earlier batches.

They are computed without gradient before the first update of a pass, because a loss sees one micro-batch. With one
update a batch (the default of every method here) they are what the loss would compute from the live weights.
"""

from __future__ import annotations

import torch

from burnish.core.parts import Part, supplies
from burnish.core.preferences import FromScores, chance
from burnish.core.step import Step
from burnish.core.types import Group, Trace


def fill(trace: Trace, stream: str, value: float) -> None:
    """One number on all tokens of a trace."""
    trace.streams[stream] = torch.full((len(trace),), float(value))


def reply_sum(trace: Trace, stream: str, author: str) -> float:
    """The sum of a stream over the author's tokens."""
    return float(trace.streams[stream][trace.by(author)].sum())


def pairs_in_order(groups: list[Group]) -> list[tuple[Trace, Trace]]:
    """The pairs (preferred, other) of all groups, in the order of the tasks' keys, whatever the order of the batch."""
    ordered = sorted(groups, key=lambda group: group.task.key)
    return [(group.traces[a], group.traces[b]) for group in ordered for a, b in group.pairs or ()]


@supplies("stream:preference")
def pair_preference(preference: FromScores, *, score: str = "reward") -> Part:
    """The chance that the first reply of a pair is preferred, as stream "preference" of both.

    It is that of the run's oracle; without one, of the two scores.
    """

    def call(groups: list[Group], step: Step) -> list[Group]:
        for w, r in pairs_in_order(groups):
            wins = chance(w, r, preference, score)
            fill(w, "preference", wins)
            fill(r, "preference", wins)
        return groups

    return Part(
        name="pair_preference",
        call=call,
        reads=frozenset({"pairs", f"score:{score}"}),
        writes=frozenset({"stream:preference"}),
    )
