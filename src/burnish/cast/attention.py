"""The one attention that models are loaded with, registered with transformers under the name "burnish".

What a forward looks like is said by the `layout` that is passed to it: a pack of rows (cast/packing.py), or rows that
are being decoded (cast/engine). Without a layout it is plain scaled-dot-product attention, so that such a model can be
used like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from burnish.cast.packing import Packed

NAME = "burnish"


class Layout(Protocol):
    """How the tokens of a forward see each other. packed: the pack that they are; None where rows add a token each."""

    @property
    def packed(self) -> Packed | None: ...

    def attend(self, module: nn.Module, q: Tensor, k: Tensor, v: Tensor, scale: float, window: int | None) -> Tensor:
        """[1, N, heads, D] or [rows, 1, heads, D] from queries, keys and values as transformers makes them."""
        ...


@runtime_checkable
class Keeps(Protocol):
    """A layout that keeps keys and values."""

    def keep(self, module: nn.Module, k: Tensor, v: Tensor) -> None:
        """[N, heads, D] of one layer."""
        ...


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    layout: Layout | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """transformers calls this in every layer, with [B, heads, T, D]."""
    if layout is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    for name in ("softcap", "s_aux"):
        if kwargs.get(name) is not None:
            raise ValueError(f"this model's attention uses {name}, which packed rows do not know; pass --no-packed")
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    return layout.attend(module, query, key, value, scale, sliding_window), None


def register() -> str:
    """Make the attention known to transformers; its name."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def no_mask(device: torch.device) -> Tensor:
    """What tells transformers to build no mask: a mask of four dimensions is taken as it is, and the layout ignores it."""
    return torch.empty(1, 1, 1, 1, device=device)
