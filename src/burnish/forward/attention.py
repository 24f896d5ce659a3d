"""The one attention that models are loaded with, registered with transformers under the name "burnish".

What a forward looks like is said by the `layout` that is passed to it: a pack of rows (forward/packing.py), or rows
that are being decoded (engine/). Without a layout it is plain scaled-dot-product attention, so that such a model can be
used like any other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from burnish.forward.packing import Packed

NAME = "burnish"
CARRIED = "burnish_layout"  # the attribute of a mask that holds the layout (a tensor has a `layout` of its own)


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
    for name in ("softcap", "s_aux"):  # torch's attention ignores the second, and gives wrong numbers
        if kwargs.get(name) is not None:
            raise ValueError(f"this model's attention uses {name}, which only transformers' own attention computes")
    if layout is None:  # some decoder layers (StableLM's, Nemotron's) pass the mask on to here, but no other argument
        layout = getattr(attention_mask, CARRIED, None)
    if layout is None:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    return layout.attend(module, query, key, value, scale, sliding_window), None


def register() -> str:
    """Make the attention known to transformers; its name."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def no_mask(device: torch.device, layout: Layout) -> Tensor:
    """A mask of four dimensions and no numbers that carries the layout: given one, transformers builds none.

    A layer that adds it to its scores, because its attention is not `attention`, raises an error about shapes.
    """
    mask = torch.empty(1, 1, 0, 0, device=device)
    setattr(mask, CARRIED, layout)
    return mask


def dispatches(model_class: type) -> bool:
    """Whether a transformers class asks its config which attention to run.

    The others (BLOOM, MPT, Falcon, GPT-J, ...) have an attention of their own, which needs the mask of transformers'
    "eager" attention: the mask that belongs to the name registered here is empty for causal rows.
    """
    return hasattr(sys.modules[model_class.__module__], "ALL_ATTENTION_FUNCTIONS")


def implementation(model_class: type) -> str:
    """The name of the attention to load a transformers class with."""
    return register() if dispatches(model_class) else "eager"


@contextmanager
def by_transformers(model: nn.Module) -> Iterator[None]:
    """Run a transformers model with transformers' own eager attention for a while."""
    config: Any = model.config
    inside = [getattr(config, name, None) for name in getattr(config, "sub_configs", ())]
    names = [(one, one._attn_implementation) for one in (config, *inside) if one is not None]
    config._attn_implementation = "eager"
    try:
        yield
    finally:
        for one, name in names:  # a configuration passes its name on to those inside it
            one._attn_implementation = name
