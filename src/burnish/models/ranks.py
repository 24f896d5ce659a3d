"""Which part of an update's micro-batches this process works on, and how gradients are added up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch.distributed as dist
from torch import nn

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """Rank `rank` of `world`. Sizes are counted over the whole batch on every rank, so gradients simply add."""

    rank: int = 0
    world: int = 1

    def share(self, items: Sequence[T]) -> Sequence[T]:
        return items[self.rank :: self.world]

    def sum_gradients(self, models: Iterable[nn.Module]) -> None:
        if self.world == 1 or not dist.is_initialized():
            return
        for model in models:
            for p in model.parameters():
                if p.requires_grad:
                    if p.grad is None:
                        p.grad = p.new_zeros(p.shape, dtype=p.grad_dtype)
                    dist.all_reduce(p.grad)
