"""LoRA through peft: which adapters, and how they are saved and merged."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn


@dataclass(frozen=True)
class Lora:
    """Low-rank adapters on every linear layer of the decoder. alpha defaults to twice the rank."""

    rank: int = 16
    alpha: int | None = None

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"a LoRA rank of {self.rank} trains nothing; pass --lora 8 or more")


def add_lora(model: nn.Module, lora: Lora, stored: Path | None = None) -> nn.Module:
    """The model with adapters, fresh or from a directory: only they are trained."""
    try:
        from peft import LoraConfig, PeftModel, get_peft_model
    except ImportError:
        raise ValueError("LoRA needs peft: pip install 'burnish[lora]'") from None
    if stored is not None:
        return PeftModel.from_pretrained(model, stored, is_trainable=True).eval()  # type: ignore[arg-type]
    config = LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha or 2 * lora.rank,
        target_modules="all-linear",
        lora_dropout=0.0,
        task_type="CAUSAL_LM",
    )
    torch.manual_seed(0)  # peft draws the adapters from the global generator; the same ones every time
    return get_peft_model(model, config).eval()  # type: ignore[arg-type]


def merged(model: nn.Module) -> nn.Module:
    """A plain model with the adapters added into the weights; the original is left as it is."""
    return copy.deepcopy(model).merge_and_unload()  # type: ignore[operator]


def is_lora(model: nn.Module) -> bool:
    return "peft" in type(model).__module__
