"""The native Llama, Qwen2 or Qwen3 with the weights of a transformers model: for LoRA, whose adapters peft puts around
transformers' modules.

Nothing is copied: the native modules hold the same parameters, frozen weights as well as A and B, so that gradients
arrive where the optimiser looks for them. Without adapters only a frozen model is adopted, the reference of a LoRA run,
so that it computes with the same code as the policy.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from burnish.forward.module import bare
from burnish.kernels.cpu.c_adapters import Adapter
from burnish.kernels.cpu.config import shape_from
from burnish.kernels.cpu.llama import Llama, Matrix, Weight
from burnish.kernels.lora import NotPlain, base_of, plain_adapter
from burnish.util.host_memory import host_memory

SHARE = 0.6  # of the machine's memory that the weights and their layout for the kernels may take


def adopted(module: nn.Module) -> Llama | None:
    """The native model of a transformers model on the CPU, with or without adapters around it; None where the C kernels
    do not run it, where its weights are too large to be held twice, or where more is trained than its adapters."""
    inner = bare(module)
    if any(p.dtype != torch.float32 or p.device.type != "cpu" for p in inner.parameters()):
        return None
    config = inner.config.to_dict() if hasattr(inner.config, "to_dict") else {}
    shape = shape_from({**config, "architectures": [type(inner).__name__]})
    if shape is None or 2 * sum(4 * p.numel() for p in inner.parameters()) > SHARE * host_memory():
        return None
    native = Llama(shape)
    if native.model.sizes is None:
        return None
    try:
        adapted = _adopt(native, inner)
    except NotPlain:
        return None
    if {id(p) for p in module.parameters() if p.requires_grad} - adapted:
        return None
    native.model.checkpointing = bool(getattr(inner, "is_gradient_checkpointing", False))
    return native.train(module.training)


def _adopt(native: Llama, inner: Any) -> set[int]:
    """Give a native model the parameters of a transformers model; the ids of those that belong to adapters.

    Raises NotPlain where a module is another one than a native model has.
    """
    adapted: set[int] = set()
    for name, part in native.named_modules():
        if not isinstance(part, Weight | nn.Embedding):
            continue
        theirs = inner.get_submodule(name)
        base = base_of(theirs)
        _require_same(part, base)
        part.weight = base.weight
        if not isinstance(part, Matrix):
            continue
        part.bias = base.bias
        found = plain_adapter(theirs)
        if found is None:
            continue
        if part is native.lm_head:
            raise NotPlain
        part.adapter = Adapter(*found)
        adapted |= {id(p) for p in found[:2]}
    return adapted


def _require_same(part: Any, base: Any) -> None:
    """Raise NotPlain where a module of transformers does not hold what the native one does."""
    ours = type(base).__module__.startswith(("torch.nn", "transformers.models"))
    weight, bias = getattr(base, "weight", None), getattr(base, "bias", None)
    same = isinstance(weight, nn.Parameter) and weight.shape == part.weight.shape
    if not ours or not same or (bias is None) != (getattr(part, "bias", None) is None):
        raise NotPlain
