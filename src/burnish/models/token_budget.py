"""How many tokens one micro-batch holds by default: as many as keep the device busy, if they fit."""

from __future__ import annotations

from pathlib import Path

import torch

from burnish.models.decoder_shape import DecoderShape

ON_CPU = 8192
SHARE = 0.25  # of a GPU's free memory, for the activations of one micro-batch
LEAST = 2048
BUSY_FROM = 2176  # tokens: eight replies of 256 tokens and their prompt of 128 stay together
NUMBERS = 1 << 23  # tokens x hidden size that keep a GPU busy
MOST = 8192


def token_budget(model: Path, device: str, samples: bool = True) -> int:
    """Tokens of one micro-batch: 8192 on a CPU; on a GPU as many as keep it busy, or as fit a quarter of what is free.

    samples: whether the run samples; where it does not, there is no KV cache, and micro-batches are twice as large
    """
    if device == "cpu" or not torch.cuda.is_available():
        return ON_CPU
    shape = DecoderShape.of(model)
    free = torch.cuda.mem_get_info(None if device == "auto" else torch.device(device))[0]
    return int(max(LEAST, min((1 if samples else 2) * busy(shape), SHARE * free / shape.activation_bytes())))


def busy(shape: DecoderShape) -> int:
    """Tokens from which larger micro-batches are hardly faster (benchmarks/results/large_models.json): 8192 of a
    135M model, 4096 of one that is 2048 wide, 2176 from 4096 on.
    """
    return max(BUSY_FROM, min(MOST, NUMBERS // shape.hidden))
