"""Particle filtering: replies that grow step by step, of which the promising ones are copied and the others dropped."""

from __future__ import annotations

from burnish.score.segments import AFTER

DELIMITERS = {"lines": "\n", "paragraphs": "\n\n"}


def delimiter(steps: str) -> str:
    """The text at which a step ends."""
    found = DELIMITERS.get(steps, steps.removeprefix(AFTER).replace("\\n", "\n") if steps.startswith(AFTER) else "")
    if not found:
        raise ValueError(f"steps is {steps!r}; particles grow by lines, paragraphs or {AFTER}TEXT")
    return found
