"""Small denoisers on `tiny`'s tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

import burnish
from burnish.models.flow_model import FlowConfig, FlowModel

TINY = Path(burnish.__file__).parent / "models" / "tiny"


def flow_model(path: Path, seed: int = 0) -> Path:
    """A directory with a random denoiser of pictures of 16 x 16 pixels, four steps, and `tiny`'s tokenizer."""
    tokenizer: Any = AutoTokenizer.from_pretrained(TINY)
    torch.manual_seed(seed)
    config = FlowConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        text_layers=1,
        steps=4,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    model = FlowModel(config)
    with torch.no_grad():  # larger than at the start of a training, so that captions and levels matter
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.mul_(8 if name.startswith("embed") else 4)
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
