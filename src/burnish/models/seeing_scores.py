"""Scoring heads on models that see: critics and reward models, for which transformers has no classes.

The model is the one that writes, with numbers in place of logits: a linear map `score` of the last hidden state. It is
saved as a directory of that model with `score.weight` among its tensors and SequenceClassification in its name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from torch import nn

from burnish.forward.module import bare, text_config

if TYPE_CHECKING:
    from burnish.forward.module import TransformersModel

HEAD = "score.weight"


_CLASSES: dict[type, type] = {}


def scoring_class(kind: type) -> type:
    """The class of a model that sees, with a scoring head in place of its language head: one for each."""
    if kind in _CLASSES:
        return _CLASSES[kind]
    name = kind.__name__.replace("ForConditionalGeneration", "") + "ForSequenceClassification"
    nothing: dict[str, Any] = {"get_output_embeddings": lambda self: None, "_tied_weights_keys": {}}
    return _CLASSES.setdefault(kind, type(name, (kind,), nothing))


def as_scorer(model: nn.Module, outputs: int) -> TransformersModel:
    """The model with a fresh scoring head, whose weights are to be drawn; its other weights are shared."""
    inner: Any = bare(model)
    inner.__class__ = scoring_class(type(inner))
    inner._modules = dict(inner._modules)  # a copy shares the table of modules with the model that writes
    inner._modules.pop("lm_head", None)
    like = next(inner.parameters())
    kind = like.dtype if like.is_floating_point() else torch.bfloat16
    inner.score = nn.Linear(int(text_config(inner).hidden_size), outputs, bias=False, device=like.device, dtype=kind)
    inner.config = type(inner.config).from_dict(inner.config.to_dict())
    inner.config.num_labels = outputs
    inner.config._attn_implementation = text_config(model)._attn_implementation
    scorer: TransformersModel = inner
    return scorer


def seeing_scorer(
    language: tuple[nn.Module, set[str]], path: Path, outputs: int, kept: int
) -> tuple[TransformersModel, set[str]]:
    """A scoring model on a language model that sees, and the weights that its directory lacks. kept: the outputs of
    the head that is stored there; 0: the head is to be drawn.
    """
    model, missing = language
    scorer = as_scorer(model, kept or outputs)
    if kept:
        for file in sorted(path.glob("*.safetensors")):
            with safe_open(file, "pt") as tensors:
                if HEAD in tensors.keys():  # noqa: SIM118 - it is no mapping
                    scorer.score.weight.data.copy_(tensors.get_tensor(HEAD))
                    return scorer, missing - {"lm_head.weight"}
        missing = missing | {HEAD}
    return scorer, missing - {"lm_head.weight"}
