"""Options of models that fill in hidden tokens: a group of its own (config/groups.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from burnish.core.option import Option
from burnish.forward.masked import PLACES, VIEWS


@dataclass(frozen=True)
class Filling:
    """Models that fill in hidden tokens"""

    view: Annotated[str, Option(choices=("", *VIEWS))] = ""
    """What is hidden when their log-probs are taken: trajectory (what its step had not written yet), all (the whole
    reply), random. By default the method's, which is trajectory unless its page says otherwise (docs/masked.md)."""
    unmask_per_step: Annotated[int, Option(at_least=1)] = 1
    """Tokens that a step of their sampler writes."""
    unmask_places: Annotated[str, Option(choices=PLACES)] = "surest"
    """Which hidden tokens a step writes: those that it is surest of, or some by chance."""
    unmask_block: Annotated[int | None, Option(at_least=1)] = None
    """Tokens of a block that they fill in before the next one; by default the model's."""
