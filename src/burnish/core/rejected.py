"""Reject updates that contain NaN or Inf, and keep the batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # grader processes import this module, and start without torch
    from burnish.core.types import Group


class NotFinite(FloatingPointError, ValueError):
    """A reward, loss or gradient is NaN or infinite, so the update must be rejected."""


@dataclass(frozen=True)
class RejectedUpdate:
    """A rejected update: its phase, the reason, and its groups."""

    phase: str
    why: str
    groups: list[Group] = field(default_factory=list, repr=False)


def require_finite_scores(groups: list[Group], who: str) -> None:
    """Raise NotFinite for the first score that is NaN or infinite, before stateful parts see it."""
    for group in groups:
        for trace in group.traces:
            for name, value in trace.scores.items():
                if not math.isfinite(value):
                    raise NotFinite(f"{who} gave reply {trace.index} to {group.task.key!r} the {name} {value}")
