"""Weights that become NaN during a run: it stops with a one-sentence error, and no model is saved."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from runs import go

from burnish.cli import main
from burnish.run.train import Observer, Run


class Breaks(Observer):
    """Makes one weight NaN before the first step, as a bad update would."""

    def started(self, run: Run) -> None:
        with torch.no_grad():
            next(iter(run.models["policy"].module.parameters())).view(-1)[:] = torch.nan


@pytest.mark.parametrize("model", ["tiny", "small"])
def test_weights_that_break_stop_the_run_by_name(model: str, small_model: Path, tmp_path: Path) -> None:
    match = r"logits are NaN or infinite.*The weight model.embed_tokens.weight of 'policy' itself is not finite"
    with pytest.raises(FloatingPointError, match=match):
        go("grpo", model if model == "tiny" else small_model, tmp_path / "run", observer=Breaks())
    assert not (tmp_path / "run" / "model").exists()


def test_a_learning_rate_beyond_all_bounds_makes_no_model(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match="not finite|NaN or infinite|norm is"):
        go("sft", small_model, tmp_path / "run", lr=3e38, steps=6)
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_learning_rate_that_is_not_finite(value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "grpo", "--lr", value, "--out", str(tmp_path / "run")]) == 2
    said = capsys.readouterr()
    assert (
        f"option 'lr' is {value}; it must be a finite number" in said.out + said.err and not (tmp_path / "run").exists()
    )
