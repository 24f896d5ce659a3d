"""Models of several files in and out, loading straight to a device, and merging without a second model on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, make_model
from runs import halted_after
from torch import nn

import burnish
from burnish.api.train import resume
from burnish.checkpoint.diff import differences
from burnish.core.roles import trained
from burnish.models import load, save
from burnish.models.build import build
from burnish.models.load import load_model, straight_to
from burnish.models.lora import Lora, merged
from burnish.models.precision import stored_weights

ROW = torch.tensor([[5, 9, 40, 17, 33, 21, 8]])
CPU = torch.device("cpu")


@torch.no_grad()
def logits(model: nn.Module) -> torch.Tensor:
    found: torch.Tensor = model(ROW).logits
    return found


def cut(path: Path, into: Path) -> Path:
    """The same model in several files."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_pretrained(path).save_pretrained(into, max_shard_size="40KB")
    AutoTokenizer.from_pretrained(path).save_pretrained(into)
    assert len(list(into.glob("*.safetensors"))) > 2 and not (into / "model.safetensors").exists()
    return into


@pytest.mark.parametrize("kind", ["Llama", "Olmo2"])
def test_a_model_of_several_files_is_the_same_model(kind: str, tmp_path: Path) -> None:
    whole = make_model(tmp_path / "whole", kind=kind)
    shards = cut(whole, tmp_path / "shards")
    assert stored_weights(shards) == stored_weights(whole)
    mask = torch.arange(ROW.shape[1]) > 0
    found = []
    for path in (whole, shards):
        model = build({"policy": trained()}, path, SMALL, device="cpu")["policy"]
        with torch.no_grad():
            found.append(model.outputs([ROW[0].numpy()], [mask], {"logp"})["logp"])
    assert torch.equal(*found)


@pytest.mark.parametrize("kind", ["Llama", "Olmo2"])
def test_a_file_that_is_missing_is_one_sentence(kind: str, tmp_path: Path) -> None:
    shards = cut(make_model(tmp_path / "whole", kind=kind), tmp_path / "shards")
    sorted(shards.glob("*.safetensors"))[1].unlink()
    with pytest.raises(ValueError, match=r"cannot be loaded|are not whole"):
        build({"policy": trained()}, shards, SMALL, device="cpu")


def test_a_large_model_is_saved_in_several_files_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import AutoModelForCausalLM

    monkeypatch.setattr(save, "SHARD", "40KB")
    base = make_model(tmp_path / "model", kind="Olmo2")
    options: dict[str, Any] = {"model": str(base), "task": "sort", "prompts": 2, "eval_tasks": 0, "lr": 1e-2}
    result = burnish.train("sft", out=str(tmp_path / "run"), steps=4, save_every=2, device="cpu", **options)
    assert result.model is not None and len(list(result.model.glob("*.safetensors"))) > 2
    theirs = AutoModelForCausalLM.from_pretrained(result.model, dtype=torch.float32).eval()
    assert torch.allclose(logits(theirs), logits(load_model(result.model, 0, CPU)), atol=1e-5)
    resume(halted_after(2, tmp_path / "run", tmp_path / "halted"))
    assert not differences(tmp_path / "run", tmp_path / "halted")


def test_weights_are_read_onto_the_device(small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of a GPU, taken on a CPU: the same weights, no hooks on the modules, and a dtype as stored."""
    pytest.importorskip("accelerate")
    assert straight_to(CPU) == {}
    assert straight_to(torch.device("cuda:0")) == {"device_map": {"": torch.device("cuda:0")}}
    plain = load_model(small_model, 0, CPU, native=False)
    monkeypatch.setattr(load, "straight_to", lambda device: {"device_map": {"": device}})
    straight = load_model(small_model, 0, CPU, native=False)
    assert torch.equal(logits(plain), logits(straight))
    assert not any("_hf_hook" in vars(part) for part in straight.modules())
    scorer = load_model(small_model, 1, CPU, native=False)
    assert float(scorer.score.weight.detach().std()) == pytest.approx(0.01, rel=0.5)  # type: ignore[union-attr]


def test_adapters_are_merged_on_the_host(small_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that says it is on another device is copied parameter by parameter, and left as it is."""
    pytest.importorskip("peft")
    model: Any = build({"policy": trained()}, small_model, SMALL, device="cpu", lora=Lora(2))["policy"].module
    for p in model.parameters():
        if p.requires_grad:
            p.data.add_(0.1)
    adapted = logits(model)
    assert torch.allclose(logits(merged(model)), adapted, atol=1e-5)
    assert torch.equal(logits(model), adapted)
    copied: list[str] = []
    monkeypatch.setattr(torch.Tensor, "is_cpu", property(lambda self: False))  # as on a GPU
    monkeypatch.setattr(torch.Tensor, "cpu", lambda self: copied.append("") or self.clone())
    plain = merged(model)
    assert len(copied) >= len(list(model.parameters()))
    own = {p.data_ptr() for p in model.parameters()}
    assert not own & {p.data_ptr() for p in plain.parameters()}
    assert torch.allclose(logits(plain), adapted, atol=1e-5)
