"""The LoRA adapters of peft as kernels read them: y = x W^T + scale (x A^T) B^T, with W frozen."""

from __future__ import annotations

from typing import Any

from torch import nn


class NotPlain(Exception):
    """An adapter that does more than add a product of two matrices."""


def base_of(projection: Any) -> Any:
    """The linear map under an adapter of peft, or the projection itself."""
    return projection.base_layer if hasattr(projection, "lora_A") else projection


def plain_adapter(projection: Any) -> tuple[nn.Parameter, nn.Parameter, float] | None:
    """A, B and the scale of a projection's adapter; None: it has none. Raises NotPlain for another kind of adapter."""
    if not hasattr(projection, "lora_A"):
        return None
    active = list(projection.active_adapters)
    if projection.disable_adapters or projection.merged or len(active) != 1 or active[0] not in projection.lora_A:
        raise NotPlain
    name = active[0]
    down, up, dropout = projection.lora_A[name], projection.lora_B[name], projection.lora_dropout[name]
    plain = type(down) is nn.Linear and type(up) is nn.Linear and down.bias is None and up.bias is None
    silent = isinstance(dropout, nn.Identity) or getattr(dropout, "p", 1.0) == 0
    if not plain or not silent or getattr(projection, "lora_variant", None):
        raise NotPlain
    return down.weight, up.weight, float(projection.scaling[name])
