"""Moments that several ranks hold (--shard optimiser, --shard states), brought together for a checkpoint.

Rank 0 decides when to save, and the others wait for its word after each step. So it asks them (`ask`), and they send
what they hold (`serve`). A checkpoint has all moments, as that of one process has: any number of ranks resumes it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from burnish.models.build import Models
from burnish.models.model import Model
from burnish.models.optimiser import Optimiser
from burnish.models.sharded_states import whole_states

MOMENTS = "moments"  # what rank 0 asks for


def sharded(models: Models) -> list[Model]:
    """The models whose moments several ranks hold."""
    if not models.ranks.connected:
        return []
    return [model for model in models.trained() if model.optimiser.owners or model.optimiser.states is not None]


def ask(models: Models) -> None:
    """On rank 0: have the others send their moments, into `others` of each optimiser."""
    if not sharded(models):
        return
    models.ranks.from_first(MOMENTS)
    _exchange(models)


def forget(models: Models) -> None:
    """On rank 0: a checkpoint has what it needs of the others."""
    for model in sharded(models):
        model.optimiser.others = {}


def serve(models: Models) -> Any:
    """On the other ranks: send moments as often as rank 0 asks for them; then what else it says."""
    while (message := models.ranks.from_first(None)) == MOMENTS:
        _exchange(models)
    return message


def _exchange(models: Models) -> None:
    ranks = models.ranks
    for model in sharded(models):
        own = model.optimiser.state_dict() if ranks.rank else {}
        shapes = [(name, list(value.shape), str(value.dtype).removeprefix("torch.")) for name, value in own.items()]
        parts: list[dict[str, Tensor]] = [{} if ranks.rank else model.optimiser.state_dict()]
        for source, (head, _) in enumerate(ranks.gather_values(shapes)):
            part: dict[str, Tensor] = {}
            for name, shape, dtype in head:
                if ranks.rank == source:
                    ranks.send(own[name].cpu().contiguous(), 0)
                elif not ranks.rank:
                    part[name] = torch.empty(shape, dtype=getattr(torch, dtype))
                    ranks.receive(part[name], source)
            parts += [part] if source else []
        if not ranks.rank:
            model.optimiser.others = _together(model.optimiser, parts)


def _together(optimiser: Optimiser, parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """What a checkpoint has beside, or in place of, what rank 0 holds."""
    if optimiser.states is None:
        return {name: value for part in parts[1:] for name, value in part.items()}
    on_host = [{name: value.cpu() for name, value in part.items()} for part in parts]
    return whole_states(optimiser.named, on_host)
