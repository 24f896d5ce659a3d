"""The native Llama, Qwen2 or Qwen3 with the parameters of a transformers model: for LoRA, whose adapters peft puts
around transformers' modules, and for critics and reward models, which have a scoring head in place of logits.

Nothing is copied: the native modules hold the same parameters, weights as well as A and B, so that gradients arrive
where the optimiser looks for them. A language model is adopted with adapters, or frozen: the reference of a LoRA run,
so that it computes with the same code as the policy. One whose weights are all trained is loaded as a native model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from burnish.forward.module import bare
from burnish.kernels.cpu.c_adapters import Adapter
from burnish.kernels.cpu.config import Shape, shape_from
from burnish.kernels.cpu.llama import Decoder, Llama, Matrix, Weight
from burnish.kernels.lora import NotPlain, base_of, plain_adapter
from burnish.util.host_memory import host_memory

SHARE = 0.6  # of the machine's memory that the weights and their layout for the kernels may take
SCORES, SPEAKS = "ForSequenceClassification", "ForCausalLM"  # ends of the names of transformers' classes


class ScoringModel(nn.Module):
    """A native decoder with the scoring head of a transformers model: numbers of each token in place of logits."""

    def __init__(self, shape: Shape, score: nn.Module) -> None:
        super().__init__()
        self.config, self.model, self.score = shape, Decoder(shape), score

    @property
    def base_model(self) -> Decoder:
        return self.model

    def get_input_embeddings(self) -> nn.Embedding:
        return self.model.embed_tokens

    def weights_moved(self) -> None:
        """Weights have changed: their layouts are stale."""
        self.model.weights_moved()


def adopted(module: nn.Module) -> Llama | ScoringModel | None:
    """The native model of a transformers model on the CPU, with or without adapters around it; None where the C kernels
    do not run it, or where its weights are too large to be held twice."""
    inner = bare(module)
    shape = _shape(inner)
    if shape is None:
        return None
    native = ScoringModel(shape, inner.score) if type(inner).__name__.endswith(SCORES) else Llama(shape)
    if native.model.sizes is None:
        return None
    try:
        adapted = _adopt(native, inner)
    except NotPlain:
        return None
    learned = {id(p) for p in native.parameters()} if isinstance(native, ScoringModel) else set()
    if {id(p) for p in module.parameters() if p.requires_grad} - adapted - learned:
        return None
    native.model.checkpointing = bool(getattr(inner, "is_gradient_checkpointing", False))
    return native.train(module.training)


def _shape(inner: Any) -> Shape | None:
    """The shape of a transformers model that could be adopted; None where it could not."""
    parameters = list(inner.parameters())
    elsewhere = any(p.dtype != torch.float32 or p.device.type != "cpu" for p in parameters)
    if elsewhere or not hasattr(inner.config, "to_dict"):
        return None
    if 2 * sum(4 * p.numel() for p in parameters) > SHARE * host_memory():
        return None
    name = type(inner).__name__
    name = name.removesuffix(SCORES) + SPEAKS if name.endswith(SCORES) else name
    return shape_from({**inner.config.to_dict(), "architectures": [name]})


def _adopt(native: Llama | ScoringModel, inner: Any) -> set[int]:
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
        if name == "lm_head":
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
