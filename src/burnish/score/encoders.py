"""Encoders of transformers (BERT, DeBERTa) that score a prompt with a reply, or compare two replies, by their words."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from burnish.models.known_models import resolve

ROWS = 16  # texts that are read at once
Text = str | tuple[str, str]  # one text, or two segments


class Encoder:
    """A sequence classifier in a directory, loaded when it is first asked; its weights are never trained."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._loaded: tuple[Any, Any] | None = None

    @torch.no_grad()
    def __call__(self, texts: Sequence[Text], device: torch.device) -> Tensor:
        """[n, k]: the outputs for each text, or pair of segments; the longer segment is cut to the model's length."""
        model, tokenizer = self._loaded = self._loaded or _load(resolve(self.source))
        model.to(device)
        found = []
        for start in range(0, len(texts), ROWS):
            some = texts[start : start + ROWS]
            pairs = [(one, None) if isinstance(one, str) else one for one in some]
            second = [b for _, b in pairs if b is not None] or None
            batch = tokenizer(
                [a for a, _ in pairs],
                second,
                padding=True,
                truncation="longest_first",
                max_length=_longest(model, tokenizer),
                return_tensors="pt",
            )
            found.append(model(**batch.to(device)).logits.double().cpu())
        return torch.cat(found) if found else torch.zeros(0, 1, dtype=torch.float64)


def _load(path: Path) -> tuple[Any, Any]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model, info = AutoModelForSequenceClassification.from_pretrained(
        path, trust_remote_code=False, use_safetensors=True, output_loading_info=True
    )
    if missing := sorted(info["missing_keys"]):
        raise ValueError(
            f"the model in {path} has no head to score with ({missing[0]} is missing); pass a model that was trained "
            "for sequence classification"
        )
    return model.eval().requires_grad_(False), AutoTokenizer.from_pretrained(path, trust_remote_code=False)


def _longest(model: Any, tokenizer: Any) -> int:
    places = getattr(model.config, "max_position_embeddings", None)
    return int(min(tokenizer.model_max_length, places or 512, 1_000_000))


def only(outputs: Tensor, source: str) -> Tensor:
    """[n] of [n, 1]; raises ValueError for a model with several outputs."""
    if outputs.shape[1] != 1:
        raise ValueError(f"the encoder {source!r} has {outputs.shape[1]} outputs, not one; pass a reward model")
    return outputs[:, 0]


def first_wins(outputs: Tensor, source: str) -> Tensor:
    """[n]: the chance that the first of two replies is better: of one output its sigmoid, of two that of their gap."""
    if outputs.shape[1] not in (1, 2):
        raise ValueError(f"the encoder {source!r} has {outputs.shape[1]} outputs; one that compares has one or two")
    return (outputs[:, 0] if outputs.shape[1] == 1 else outputs[:, 0] - outputs[:, 1]).sigmoid()
