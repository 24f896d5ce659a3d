"""Gradients of large models on a GPU are added up one by one; the sums are those of all at once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from burnish.models import mixed_precision
from burnish.models.load import load_model
from burnish.models.mixed_precision import ComputeCopy


def gradients(path: Path, monkeypatch: pytest.MonkeyPatch, eager_from: int) -> tuple[list[torch.Tensor], int]:
    """fp32 gradients of two backward passes on a bf16 copy, and how many bf16 gradients were still there at the end."""
    monkeypatch.setattr(mixed_precision, "on_gpu", lambda device: True)  # as on a GPU, without its kernels
    monkeypatch.setattr(mixed_precision, "kernels", lambda: None)
    monkeypatch.setattr(mixed_precision, "EAGER_FROM", eager_from)
    model = load_model(path, 0, torch.device("cpu"), native=False)
    copy = ComputeCopy(model, frozen=False)
    for start in (4, 9):
        copy.weights()(torch.arange(start, start + 12)[None]).logits.float().logsumexp(-1).sum().backward()
        left = sum(leaf.grad is not None for leaf, _ in copy.leaves)
        copy.collect()
    return [p.grad for p in model.parameters() if p.grad is not None], left


def test_one_by_one_is_all_at_once(small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together, held = gradients(small_model, monkeypatch, 10**12)
    alone, left = gradients(small_model, monkeypatch, 1)
    assert held > 10 and left == 0  # nothing is kept until the end of the backward pass
    assert len(together) == len(alone) > 10
    assert all(a.dtype == torch.float32 and torch.equal(a, b) for a, b in zip(alone, together, strict=True))
