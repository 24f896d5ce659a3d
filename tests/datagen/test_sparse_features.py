"""A sparse autoencoder: it finds the directions that made its data, and `fpo` reads its file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from burnish.cli import main
from burnish.datagen.sparse_features import train_autoencoder
from burnish.zoo.fpo import jump_relu


def test_directions_that_made_the_data_are_found() -> None:
    """States are sums of 2 of 12 directions; 12 features explain nearly all of it, each near one direction."""
    torch.manual_seed(0)
    directions = torch.nn.functional.normalize(torch.randn(12, 16), dim=-1)
    active = torch.rand(4000, 12).argsort(-1) < 2
    states = (active * (1 + torch.rand(4000, 12))) @ directions
    made = train_autoencoder(states, 24, 2, steps=500, batch=256, lr=5e-3)
    assert made.unexplained < 0.1 and 1 < made.active < 4
    cosines = (made.weights["W_dec"] @ directions.T).max(0).values
    assert (cosines > 0.9).sum() >= 10


def test_the_file_is_what_fpo_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "sae.safetensors"
    words = [
        "sae",
        "--task",
        "sort",
        "--tasks",
        "8",
        "--features",
        "64",
        "--k",
        "4",
        "--steps",
        "30",
        "--device",
        "cpu",
    ]
    assert main([*words, "--out", str(out), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert 0 < said["unexplained"] < 1 and said["active"] > 0
    width = load_file(out)["W_enc"].shape[0]
    features = jump_relu(str(out))(torch.randn(3, width))
    assert features.shape == (3, 64) and bool(((features == 0) | (features > 0)).all())
    assert main([*words, "--out", str(out)]) == 2
    run = ["train", "fpo", "--sae", str(out), "--task", "sort", "--steps", "1", "--prompts", "2", "--quiet"]
    assert main([*run, "--eval-tasks", "0", "--device", "cpu", "--out", str(tmp_path / "run")]) == 0
