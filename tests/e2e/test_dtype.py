"""A saved model has the number format of the model that it came from, or the one that --dtype names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_model
from runs import COIN, function, go, halted_after, refused, same_run
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

import burnish

WEIGHTS = "model.safetensors"


def stored(path: Path, dtype: torch.dtype, kind: str = "Llama") -> Path:
    """The small model in another format."""
    make_model(path, kind=kind)
    AutoModelForCausalLM.from_pretrained(path, dtype=dtype).save_pretrained(path)
    return path


def formats(path: Path) -> set[torch.dtype]:
    return {tensor.dtype for tensor in load_file(path).values()}


def coin(tmp_path: Path) -> str:
    """A reward that moves the weights."""
    return function(tmp_path / "coin.py", COIN, "coin")


@pytest.mark.parametrize("kind", ["Llama", "Gemma"])  # burnish's own modules on a CPU, and transformers'
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_half_precision_model_stays_one(dtype: torch.dtype, kind: str, tmp_path: Path) -> None:
    base = stored(tmp_path / "base", dtype, kind)
    run = go("grpo", base, tmp_path / "run", reward=coin(tmp_path))
    assert run.model is not None
    before, after = base / WEIGHTS, run.model / WEIGHTS
    assert formats(before) == formats(after) == {dtype}
    assert abs(after.stat().st_size - before.stat().st_size) < 1000
    assert json.loads((run.model / "config.json").read_text())["dtype"] == str(dtype).removeprefix("torch.")
    loaded = AutoModelForCausalLM.from_pretrained(run.model, dtype="auto")
    assert loaded.dtype == dtype
    kept = load_file(run.folder / "checkpoints" / "step-000002" / "policy" / WEIGHTS)
    saved = load_file(after)
    assert {t.dtype for t in kept.values()} == {torch.float32}  # a resumed run needs the master weights
    assert saved.keys() == kept.keys()
    assert all(torch.equal(saved[name], kept[name].to(dtype)) for name in saved)
    assert any(not torch.equal(saved[name], old) for name, old in load_file(before).items())


def test_a_resumed_run_has_the_same_bits(tmp_path: Path) -> None:
    base = stored(tmp_path / "base", torch.bfloat16)
    straight = go("grpo", base, tmp_path / "straight", reward=coin(tmp_path), steps=3)
    halted = halted_after(1, straight.folder, tmp_path / "halted")
    burnish.resume(halted)
    same_run(straight.folder, halted)


def test_dtype_says_otherwise(tmp_path: Path) -> None:
    base = stored(tmp_path / "base", torch.bfloat16)
    run = go("grpo", base, tmp_path / "run", reward=coin(tmp_path), dtype="float32")
    assert run.model is not None and formats(run.model / WEIGHTS) == {torch.float32}
    again = burnish.resume(run.folder, steps=3, dtype="fp16")
    assert again.model is not None and formats(again.model / WEIGHTS) == {torch.float16}
    with refused("option 'dtype' is 'int4'; it must be auto, bfloat16, float16, float32", tmp_path / "none"):
        go("grpo", base, tmp_path / "none", dtype="int4")


def test_fp32_stays_fp32(small_model: Path, tmp_path: Path) -> None:
    run = go("sft", small_model, tmp_path / "run")
    assert run.model is not None and formats(run.model / WEIGHTS) == {torch.float32}


def test_a_weight_that_float16_cannot_hold_is_named(tmp_path: Path) -> None:
    """The last checkpoint is there, so that the run can be finished with another format."""
    base = stored(tmp_path / "base", torch.float16)
    options: dict[str, Any] = {"reward": coin(tmp_path), "lr": 1e30, "steps": 1, "clip": 0.0}
    with pytest.raises(ValueError, match="too large for float16.*--dtype bfloat16"):
        go("grpo", base, tmp_path / "run", **options)
    done = burnish.resume(tmp_path / "run", dtype="bfloat16")
    assert done.model is not None and formats(done.model / WEIGHTS) == {torch.bfloat16}


def test_adapters_and_merged_models(tmp_path: Path) -> None:
    """Merged into the model they have its format; alone they are small and stay fp32, unless --dtype is given."""
    base = stored(tmp_path / "base", torch.bfloat16)
    adapters, whole = "adapter_model.safetensors", {"reward": coin(tmp_path), "lora": 2}
    merged = go("grpo", base, tmp_path / "merged", **whole, merge=True)
    alone = go("grpo", base, tmp_path / "alone", **whole)
    asked = go("grpo", base, tmp_path / "asked", **whole, dtype="bfloat16")
    assert merged.model is not None and alone.model is not None and asked.model is not None
    assert formats(merged.model / WEIGHTS) == {torch.bfloat16}
    assert formats(alone.model / adapters) == {torch.float32} and formats(asked.model / adapters) == {torch.bfloat16}
    from_adapters = go("sft", alone.model, tmp_path / "on", lr=1e-5)  # trained further, it has the base model's format
    assert from_adapters.model is not None and formats(from_adapters.model / WEIGHTS) == {torch.bfloat16}


def test_a_reward_model_has_the_format_of_its_base(tmp_path: Path) -> None:
    base = stored(tmp_path / "base", torch.bfloat16)
    run = go("reward_model", base, tmp_path / "run")
    assert run.model is not None and formats(run.model / WEIGHTS) == {torch.bfloat16}
    assert AutoModelForSequenceClassification.from_pretrained(run.model, dtype="auto").dtype == torch.bfloat16
