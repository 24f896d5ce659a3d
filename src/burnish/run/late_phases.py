"""Phases of a method that a run is too short for."""

from __future__ import annotations

from burnish.core.method import Method, Phase
from burnish.core.schedules import at
from burnish.core.types import Clock

LATER = 1 << 40  # a step after every warm-up


def late_phases(method: Method, steps: int) -> str:
    """A warning where a phase begins after the run's last step, such as the one after a warm-up; else empty."""
    late = [phase for phase in method.phases if not _runs(phase, steps) and at(phase.times, Clock(LATER, steps)) > 0]
    if not late:
        return ""
    learning = {name for phase in method.phases if _runs(phase, steps) for name in phase.learn.trainees}
    still = "" if method.product in learning else f", so the {method.product} is not trained"
    return (
        f"the phase {late[0].name!r} of {method.name} does not begin within {steps} steps{still}; raise --steps, or "
        f"shorten what comes before it (burnish show {method.name} lists the options)"
    )


def _runs(phase: Phase, steps: int) -> bool:
    return any(round(at(phase.times, Clock(step, steps))) for step in range(steps))
