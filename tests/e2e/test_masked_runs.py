"""Whole runs of a model that fills in hidden tokens: every kind of method, stopped and resumed, saved and loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import transformers
from masked_models import masked_model
from runs import COIN, go, tensors

import burnish


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
