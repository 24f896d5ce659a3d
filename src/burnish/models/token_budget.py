"""How many tokens one micro-batch holds by default: as many as keep the device busy, if they fit."""

from __future__ import annotations

from pathlib import Path

import torch

from burnish.models.decoder_shape import DecoderShape

ON_CPU = 8192
SHARE = 0.25  # of a GPU's free memory, for the activations of one micro-batch
LEAST = 2048
WIDE = 2048  # hidden size from which fewer tokens keep a GPU busy


def token_budget(model: Path, device: str) -> int:
    """Tokens of one micro-batch: 8192; 4096 of a wide model on a GPU; fewer if they do not fit a quarter of what is
    free there.
    """
    if device == "cpu" or not torch.cuda.is_available():
        return ON_CPU
    shape = DecoderShape.of(model)
    free = torch.cuda.mem_get_info(None if device == "auto" else torch.device(device))[0]
    return int(max(LEAST, min(busy(shape), SHARE * free / shape.activation_bytes())))


def busy(shape: DecoderShape) -> int:
    """Tokens from which larger micro-batches of a model are not faster (benchmarks/large_models.py)."""
    return 4096 if shape.hidden >= WIDE else 8192
