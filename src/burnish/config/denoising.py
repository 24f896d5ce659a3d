"""Options of models that draw by removing noise: a group of its own (config/groups.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from burnish.core.option import Option
from burnish.forward.denoise import REDUCED
from burnish.forward.gaussian import SAMPLERS


@dataclass(frozen=True)
class Denoising:
    """Models that draw"""

    denoise_steps: Annotated[int | None, Option(at_least=2)] = None
    """Steps from noise to a picture; by default the model's. Each but the last is a token."""
    sampler: Annotated[str, Option(choices=("", *SAMPLERS))] = ""
    """The rule of a step (docs/denoisers.md); by default the method's, which is flow_sde unless its page says
    otherwise."""
    denoise_noise: Annotated[float | None, Option(at_least=0.0)] = None
    """How much noise the sampler draws; by default what the sampler's paper says."""
    guidance: Annotated[float | None, Option(at_least=0.0)] = None
    """How far the estimate is moved away from the one without a caption; 1: not at all."""
    reduce: Annotated[str, Option(choices=REDUCED)] = "mean"
    """The log-density of a step is the mean of its pixels', as released codes have it, or their sum, as papers do."""
