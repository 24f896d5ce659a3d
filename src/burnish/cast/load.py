"""From a model directory to a model: safetensors only, no code from the directory, dropout off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from burnish.cast.chat import Chat


def load_chat(path: Path) -> Chat:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path)
    if tokenizer.eos_token_id is None:
        raise ValueError(
            f"the tokenizer in {path} has no eos token, so no reply would ever end; set eos_token in its tokenizer_config.json"
        )
    return Chat(tokenizer)


def load_model(path: Path, outputs: int, device: torch.device) -> nn.Module:
    """A causal language model, or (outputs > 0) one with `outputs` numbers per token in place of logits.

    Weights are held in fp32 (master weights); on CUDA the forward runs in bf16 autocast.
    """
    from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification
    from transformers.utils import logging

    logging.set_verbosity_error()  # a fresh head is expected, and bars for files that load in milliseconds are noise
    logging.disable_progress_bar()
    options: dict[str, Any] = {"dtype": torch.float32, "use_safetensors": True, "attn_implementation": "sdpa"}
    if outputs:
        stored = _stored_outputs(path)
        model = AutoModelForSequenceClassification.from_pretrained(path, num_labels=stored or outputs, **options)
        if (
            not stored
        ):  # a fresh head says almost 0 of everything; drawn the same every time, so that a run can be repeated
            model.score.weight.data.normal_(std=0.01, generator=torch.Generator().manual_seed(0))
    else:
        model = AutoModelForCausalLM.from_pretrained(path, **options)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model.to(device).eval()


def _stored_outputs(path: Path) -> int:
    """How many outputs a saved scalar model has; 0 for a language model."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(path)
    scalar = any("SequenceClassification" in name for name in config.architectures or ())
    return config.num_labels if scalar else 0


def context_length(model: nn.Module) -> int:
    return int(getattr(model.config.get_text_config(), "max_position_embeddings", 1 << 20))  # type: ignore[union-attr, operator]
