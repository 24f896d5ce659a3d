"""A run keeps nothing of the steps behind it: the number of tensors that are alive does not grow with the steps."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from guards import guards
from runs import go

from burnish.core.loop import Report
from burnish.run.train import Observer

pytestmark = guards("core/loop.py", "forward", "models")


class Alive(Observer):
    """Counts the tensors that are alive after each step."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        gc.collect()
        self.counts.append(sum(isinstance(found, torch.Tensor) for found in gc.get_objects()))


@pytest.mark.parametrize("method", ["grpo", "ppo", "dpo"])
def test_tensors_of_earlier_steps_are_not_kept(method: str, small_model: Path, tmp_path: Path) -> None:
    """Forty steps after the tenth add no tensor. A cache with the weights version in its key added one a step.

    The least of several steps is compared: the thread that records may hold those of a few steps for a moment.
    """
    found = Alive()
    more: dict[str, Any] = {} if method == "dpo" else {"n": 2}
    go(method, small_model, tmp_path / "run", steps=60, save_every=100, observer=found, **more)
    assert min(found.counts[40:]) - min(found.counts[10:20]) <= 8, str(found.counts)
