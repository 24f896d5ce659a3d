"""Decode steps of any model on a GPU: one kernel reads each row's root and own tokens where they lie."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from burnish.engine.kv_cache import KVCache
from burnish.kernels.triton.packed_attention import FAR


@dataclass(frozen=True)
class GpuDecode:
    """One token a row. A root is kept once: rows that share it find it in the GPU's cache after the
    first has read it.
    """

    cache: KVCache
    count: Tensor
    root: Tensor
    root_length: Tensor
    slot: Tensor
    packed: None = None

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        kv = self.cache.at(module)
        out: Tensor = torch.ops.burnish.decode(
            q, k, v, kv.own_k, kv.own_v, kv.pool_k, kv.pool_v, self.count, self.root, self.root_length, self.slot,
            scale, FAR if window is None else window,
        )  # fmt: skip
        return out
