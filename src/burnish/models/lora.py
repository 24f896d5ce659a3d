"""LoRA through peft: which adapters, and how they are made, loaded and merged."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from burnish.forward.nf4 import Nf4Linear, make_dense
from burnish.models.lora_dropout import UpdateDropout

ALL_LINEAR = "all-linear"  # every linear layer of the decoder
VARIANTS = ("lora", "rslora", "dora")
QUANTIZATIONS = ("nf4",)


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters: W x + scale B A x on the target layers; A [rank, in] and B [out, rank] are trained.

    alpha    scale = alpha / rank; by default alpha is twice the rank
    dropout  share of the inputs of A that an update leaves out (models/lora_dropout.py)
    targets  names of layers ("q_proj"), or all-linear
    variant  lora; rslora: scale = alpha / sqrt(rank) (arXiv 2312.03732); dora: m (W + scale B A) / |W + scale B A| by
             column, and m is trained as well (arXiv 2402.09353)
    whole    names of modules that are trained and saved whole beside the adapters (embed_tokens, lm_head)
    quantization  of the frozen weights: None, or nf4, which is QLoRA (forward/nf4.py)
    """

    rank: int = 16
    alpha: float | None = None
    dropout: float = 0.0
    targets: tuple[str, ...] = (ALL_LINEAR,)
    variant: str = "lora"
    whole: tuple[str, ...] = ()
    quantization: str | None = None

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"a LoRA rank of {self.rank} trains nothing; pass --lora 8 or more")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"a LoRA dropout of {self.dropout} is not a share; give a number from 0 up to 1")
        if self.variant not in VARIANTS:
            raise ValueError(f"the LoRA variant {self.variant!r} is unknown; the variants are {', '.join(VARIANTS)}")
        if self.quantization not in (None, *QUANTIZATIONS):
            raise ValueError(f"--quantization is {self.quantization!r}; it takes {', '.join(QUANTIZATIONS)}")
        if self.quantization is not None and self.variant == "dora":
            raise ValueError("DoRA reads the norms of the weights, which are in four bits; use --lora-variant lora")


def add_lora(model: Any, lora: Lora, stored: Path | None = None) -> Any:
    """The model with adapters, fresh or from a directory: only they are trained."""
    peft = _peft()
    if stored is not None:
        adapted = peft.PeftModel.from_pretrained(model, stored, is_trainable=True)
    else:
        torch.manual_seed(0)  # peft draws the adapters from the global generator; the same ones every time
        adapted = _fresh(peft, model, lora)
    for layer in adapted.modules():
        dropouts = getattr(layer, "lora_dropout", None)
        for name, one in dict(dropouts or {}).items():
            if getattr(one, "p", 0.0):
                dropouts[name] = UpdateDropout(one.p)  # type: ignore[index]
    return adapted.eval()


def _fresh(peft: Any, model: nn.Module, lora: Lora) -> Any:
    ties = bool(getattr(getattr(model, "config", None), "tie_word_embeddings", False))
    config = peft.LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha if lora.alpha is not None else 2 * lora.rank,
        target_modules=ALL_LINEAR if ALL_LINEAR in lora.targets else list(lora.targets),
        lora_dropout=lora.dropout,
        use_rslora=lora.variant == "rslora",
        use_dora=lora.variant == "dora",
        modules_to_save=list(lora.whole) or None,
        ensure_weight_tying=ties and bool(lora.whole),
        task_type="CAUSAL_LM",
    )
    names = {name.rpartition(".")[2] for name, _ in model.named_modules() if name}
    if missing := [name for name in lora.whole if name not in names]:
        raise ValueError(f"--lora-save names {missing[0]!r}, which the model does not have; it has {_layers(model)}")
    try:
        return peft.get_peft_model(model, config)
    except ValueError as error:
        why = str(error).strip().partition("\n")[0].rstrip(". ")
        raise ValueError(
            f"--lora-targets {','.join(lora.targets)} cannot be adapted ({why}); the linear layers are "
            f"{_layers(model)}, or all of them with {ALL_LINEAR}"
        ) from None


def _layers(model: nn.Module) -> str:
    kinds = (nn.Linear, nn.Embedding)
    named = [name.rpartition(".")[2] for name, layer in model.named_modules() if isinstance(layer, kinds)]
    return ", ".join(dict.fromkeys(named))


def stored_rank(path: Path) -> int:
    """The rank of the adapters in a directory; ValueError for adapters of another kind."""
    told = json.loads((path / "adapter_config.json").read_text())
    if told.get("peft_type") != "LORA" or not isinstance(told.get("r"), int):
        raise ValueError(
            f"{path} holds adapters of type {str(told.get('peft_type'))[:40]!r}, and burnish trains LoRA; merge them "
            "into their model with peft first"
        )
    return int(told["r"])


def _peft() -> Any:
    try:
        import peft
    except ImportError:
        raise ValueError("LoRA needs peft: pip install 'burnish[lora]'") from None
    return peft


def merged(model: nn.Module) -> nn.Module:
    """A plain model with the adapters added into the weights; the original is left as it is."""
    adapted: Any = copy.deepcopy(model)
    if any(isinstance(part, Nf4Linear) for part in adapted.modules()):
        make_dense(adapted, next(p.dtype for n, p in adapted.named_parameters() if n.endswith("norm.weight")))
    plain: Any = adapted.merge_and_unload()
    head, table = plain.get_output_embeddings(), plain.get_input_embeddings()
    if head is not None and head.weight is not table.weight and not torch.equal(head.weight, table.weight):
        plain.config.tie_word_embeddings = False  # one of them was trained by itself
    result: nn.Module = plain
    return result


def is_lora(model: nn.Module) -> bool:
    return "peft" in type(model).__module__


def is_adapter_weight(name: str) -> bool:
    """Whether a tensor of an adapted model belongs to its adapters: is trained and saved."""
    return "lora_" in name or ".modules_to_save." in name
