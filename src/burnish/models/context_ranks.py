"""Which ranks divide the tokens of a pass (`--context-ranks`), and which models they can do it for."""

from __future__ import annotations

import torch.distributed as dist
from torch import nn

from burnish.forward.context import ContextGroup
from burnish.forward.module import decoder
from burnish.forward.outputs import packable
from burnish.models.ranks import Ranks

_groups: dict[tuple[int, int], ContextGroup] = {}  # by rank and width: all ranks make each group once


def context_group(ranks: Ranks, width: int) -> ContextGroup | None:
    """The `width` ranks in a row that this rank is one of; None where each computes whole rows."""
    if width == 1 or not ranks.connected:
        return None
    key = ranks.rank, width
    if key not in _groups:
        for first in range(0, ranks.world, width):
            made = dist.new_group(list(range(first, first + width)))
            if first <= ranks.rank < first + width:
                _groups[key] = ContextGroup(ranks.rank - first, width, made)
    return _groups[key]


def require_context(module: nn.Module, width: int) -> None:
    """Raise ValueError for a model whose heads cannot be divided, or in which more than attention mixes tokens."""
    config = decoder(module).config
    heads, kind = config.num_attention_heads, config.model_type
    if heads % width:
        raise ValueError(
            f"--context-ranks is {width}, and the model has {heads} heads of attention, which {width} ranks cannot "
            f"divide; use {', '.join(str(n) for n in range(2, heads + 1) if heads % n == 0)}"
        )
    if not packable(module):
        raise ValueError(
            f"--context-ranks divides packed rows, and a model of type {kind!r} cannot compute them; leave it out"
        )
