"""A key-value cache that is written in place: room for the whole generation is taken once, nothing is copied per token."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer


class RoomyLayer(DynamicLayer):
    """One layer's keys and values [B, H, capacity, D], of which the first `filled` positions are in use."""

    def __init__(self, capacity: int = 0) -> None:
        super().__init__()
        self.capacity, self.filled = capacity, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys = key_states.new_empty(*key_states.shape[:2], self.capacity, key_states.shape[-1])
        self.values = value_states.new_empty(*value_states.shape[:2], self.capacity, value_states.shape[-1])
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        end = self.filled + key_states.shape[-2]
        self.keys[:, :, self.filled : end] = key_states
        self.values[:, :, self.filled : end] = value_states
        self.filled = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.filled

    def pick(self, rows: Tensor) -> None:
        """Row i of the cache becomes what row rows[i] was: for sharing a prompt among samples and for letting rows go."""
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_empty(len(rows), *old.shape[1:])
            new[:, :, : self.filled] = old[:, :, : self.filled].index_select(0, rows)
            setattr(self, name, new)


class RoomyCache(Cache):
    """The cache of a whole model."""

    def __init__(self, layers: int, capacity: int) -> None:
        super().__init__(layers=[RoomyLayer(capacity) for _ in range(layers)])

    def pick(self, rows: Tensor) -> None:
        for layer in self.layers:
            if isinstance(layer, RoomyLayer) and layer.is_initialized:
                layer.pick(rows)


def new_cache(model: torch.nn.Module, capacity: int) -> RoomyCache:
    config = model.config.get_text_config()  # type: ignore[union-attr, operator]
    return RoomyCache(config.num_hidden_layers, capacity)
