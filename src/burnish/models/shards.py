"""Moments that several ranks hold (--shard optimiser, --shard states), brought together for a checkpoint.

Rank 0 decides when to save, and the others wait for its word after each step. So it asks them (`ask`), and they send
what they hold (`serve`). A checkpoint has all moments, as that of one process has: any number of ranks resumes it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from burnish.models import write_by_ranks
from burnish.models.build import Models
from burnish.models.model import Model
from burnish.models.optimiser import Optimiser
from burnish.models.ranks import Ranks
from burnish.models.sharded_states import ShardedStates, whole_masters, whole_states

MOMENTS = "moments"  # what rank 0 asks for


def sharded(models: Models) -> list[Model]:
    """The models whose moments several ranks hold."""
    return [m for m in models.trained() if m.shards is None and (m.optimiser.owners or m.optimiser.states)]


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
        if isinstance(model.optimiser.states, ShardedStates):
            model.optimiser.states.whole = {}


def serve(models: Models) -> Any:
    """On the other ranks: send moments, or write, as often as rank 0 asks for it; then what else it says."""
    while True:
        message = models.ranks.from_first(None)
        if message == MOMENTS:
            _exchange(models)
        elif not write_by_ranks.serve(models, message):
            return message


def serve_once(models: Models) -> None:
    """On the other ranks: write along, when rank 0 saves the product."""
    write_by_ranks.serve(models, models.ranks.from_first(None))


def _exchange(models: Models) -> None:
    for model in sharded(models):
        optimiser = model.optimiser
        parts = _collected(models.ranks, optimiser.state_dict())
        if not models.ranks.rank:
            optimiser.others = _together(optimiser, parts)
        if isinstance(optimiser.states, ShardedStates) and optimiser.states.masters:
            masters = {f"master/{name}": p.detach() for name, p in optimiser.moved.items()}
            parts = _collected(models.ranks, masters)
            if not models.ranks.rank:
                optimiser.states.whole = whole_masters(optimiser.named, parts)


def _collected(ranks: Ranks, own: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    """On rank 0: what every rank holds, on the CPU; the others send it."""
    shapes = [(name, list(value.shape), str(value.dtype).removeprefix("torch.")) for name, value in own.items()]
    parts: list[dict[str, Tensor]] = []
    for source, (head, _) in enumerate(ranks.gather_values(shapes)):
        part = {name: value.cpu() for name, value in own.items()} if source == ranks.rank else {}
        for name, shape, dtype in head if source else ():
            if ranks.rank == source:
                ranks.send(part[name].contiguous(), 0)
            elif not ranks.rank:
                part[name] = torch.empty(shape, dtype=getattr(torch, dtype))
                ranks.receive(part[name], source)
        parts.append(part)
    return parts


def _together(optimiser: Optimiser, parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """What a checkpoint has beside, or in place of, what rank 0 holds."""
    if optimiser.states is None:
        return {name: value for part in parts[1:] for name, value in part.items()}
    return whole_states(optimiser.named, parts)
