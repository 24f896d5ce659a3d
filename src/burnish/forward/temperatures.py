"""Outputs from logits at several temperatures in one batch: tokens of one temperature are computed together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from burnish.forward.packing import send
from burnish.forward.prefix_tree import Numbers

Temperature = float | np.ndarray  # one for all tokens that are asked about, or one for each of them [N]
Compute = Callable[[Numbers | slice, float], dict[str, Tensor]]  # (which tokens, their temperature) -> outputs [n, ...]


def by_temperature(temperature: Temperature, compute: Compute) -> dict[str, Tensor]:
    """compute's outputs for all tokens, in their order. One temperature is one call, for slice(None)."""
    if not isinstance(temperature, np.ndarray):
        return compute(slice(None), temperature)
    values, which = np.unique(temperature, return_inverse=True)
    if len(values) == 1:
        return compute(slice(None), float(values[0]))
    places = [np.flatnonzero(which == k) for k in range(len(values))]
    parts = [compute(some, float(value)) for some, value in zip(places, values, strict=True)]
    order = torch.from_numpy(np.argsort(np.concatenate(places)))
    joined = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    return {name: x.index_select(0, send(order, x.device)) for name, x in joined.items()}
