"""What happens to numbers that are none: an update with a NaN or an infinity in it is refused, and its batch is kept."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # graders come through here, and start without torch
    from burnish.nouns import Group


class NotFinite(FloatingPointError, ValueError):
    """A reward, a loss or a gradient is NaN or infinite: what it was for must not be learned."""


@dataclass(frozen=True)
class Refusal:
    """An update that was not made: where, why, and on which groups."""

    phase: str
    why: str
    groups: list[Group] = field(default_factory=list, repr=False)


def require_finite_scores(groups: list[Group], who: str) -> None:
    """Raises NotFinite for the first score that is no number; parts with memory never get to see it."""
    for group in groups:
        for trace in group.traces:
            for name, value in trace.scores.items():
                if not math.isfinite(value):
                    raise NotFinite(f"{who} gave reply {trace.index} to {group.task.key!r} the {name} {value}")
