"""Whole runs of a model that fills in hidden tokens: every kind of method, stopped and resumed, saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from masked_models import masked_model
from runs import COIN, go, tensors

import burnish
from burnish.config.options import Options
from burnish.core.method import Method
from burnish.core.roles import trained
from burnish.engine.request import Request
from burnish.methods.table import find
from burnish.models.build import build
from burnish.tasks.source import Source
from burnish.tasks.table import source


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return masked_model(tmp_path_factory.mktemp("masked"), block=4)


@pytest.mark.parametrize("method", ["sft", "dpo", "grpo", "diffu_grpo"])
def test_stop_and_resume_is_straight_through(method: str, masked: Path, tmp_path: Path) -> None:
    """Bit for bit: what is hidden is a function of row and step."""
    more: dict[str, Any] = {"n": 2} if method == "diffu_grpo" else {}
    if method.endswith("grpo"):
        (tmp_path / "coin.py").write_text(COIN)
        more["reward"] = f"{tmp_path / 'coin.py'}:coin"
    go(method, masked, tmp_path / "straight", task="add:1", steps=3, **more)
    go(method, masked, tmp_path / "stopped", task="add:1", steps=2, **more)
    burnish.resume(tmp_path / "stopped", steps=3)
    straight, stopped = (tensors(tmp_path / name / "model") for name in ("straight", "stopped"))
    assert straight == stopped != tensors(masked)
    loaded = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "straight" / "model")
    assert type(loaded).__name__ == "EuroBertForMaskedLM" and loaded.config.block_length == 4


def _written(masked: Path, **options: Any) -> tuple[list[int], int, torch.Tensor]:
    """The step that wrote each token of a reply, the tokens of a block, and the log-probs of a given reply."""
    told: Source = source("add:1")
    method: Method = find("grpo").build(told)
    settings = Options(lr=1e-4, token_budget=512, max_new_tokens=8, **options).settings(method)
    model = build({"policy": trained()}, masked, settings, device="cpu")["policy"]
    sample = model.generate([Request(torch.arange(4, 9), 5, 8)])[0]
    assert sample.canvas is not None
    row = torch.arange(4, 20)
    with torch.no_grad():
        logp = model.outputs([row], [torch.arange(16) > 8], {"logp"})["logp"]
    return sample.canvas.steps.tolist(), sample.canvas.block, logp


def test_how_replies_are_written_is_an_option(masked: Path) -> None:
    steps, block, logp = _written(masked)
    assert block == 4 and max(steps.count(step) for step in steps) == 1
    two, _, _ = _written(masked, unmask_per_step=2)
    assert {two.count(step) for step in two} == {2}
    _, wide, _ = _written(masked, unmask_block=8)
    assert wide == 8
    chance, _, _ = _written(masked, unmask_places="chance")
    assert chance != steps and sorted(chance) == sorted(steps)[: len(chance)]
    _, _, hidden = _written(masked, view="all")
    assert not torch.allclose(hidden, logp, atol=1e-3)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"method": "ppo"}, "cannot be a critic"),
        ({"engine": "process"}, "use --engine local"),
        ({"top_p": 0.9}, "leave out --top-p"),
        ({"chunk": 2}, "leave out"),
    ],
)
def test_what_is_not_known_is_refused_in_a_sentence(
    more: dict[str, str], words: str, masked: Path, tmp_path: Path
) -> None:
    options = {key: value for key, value in more.items() if key != "method"}
    with pytest.raises(ValueError, match=words):
        go(more.get("method", "grpo"), masked, tmp_path / "run", task="add:1", **options)
