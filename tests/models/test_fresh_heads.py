"""Fresh scoring heads on any model, and what is noted of a critic."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import SMALL, build_cast, build_method, make_model
from decoders import save_decoder
from safetensors.torch import load_file, save_file
from torch import tensor

from burnish.core.loop import loop
from burnish.core.roles import trained
from burnish.learn.maths.value import clipped_squared_error, explained_variance, value_is_clipped
from burnish.learn.reward_head import head_of
from burnish.models.build import build
from burnish.models.lora import Lora
from burnish.models.model import Model


def with_final_norm(path: Path, factor: float) -> Path:
    """The small model, its final norm's weights multiplied by a factor."""
    make_model(path)
    weights = load_file(path / "model.safetensors")
    weights["model.norm.weight"] *= factor
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path


@torch.no_grad()
def values(critic: Model) -> torch.Tensor:
    generator = torch.Generator().manual_seed(5)
    rows = [torch.randint(4, 260, (12,), generator=generator) for _ in range(20)]
    return critic.outputs(rows, [torch.arange(12) > 0 for _ in rows], {"value"})["value"]


@pytest.mark.parametrize("lora", [None, Lora(2)], ids=["whole", "lora"])
@pytest.mark.parametrize("factor", [8.0, 100.0])
def test_a_fresh_head_is_small_whatever_the_final_norm_is(factor: float, lora: Lora | None, tmp_path: Path) -> None:
    if lora is not None:
        pytest.importorskip("peft", reason="LoRA needs peft")
    path = with_final_norm(tmp_path / "model", factor)
    found = values(build({"critic": trained(outputs=8)}, path, SMALL, device="cpu", lora=lora)["critic"])
    assert 0.2 < float(found.square().mean().sqrt()) < 0.3, "0.25, up to the draw"


def test_where_it_is_small_already_the_draw_is_what_it_was(small_model: Path) -> None:
    for outputs in (1, 3):
        critic = build({"critic": trained(outputs=outputs)}, small_model, SMALL, device="cpu")["critic"]
        wanted = torch.empty(outputs, 32).normal_(std=0.01, generator=torch.Generator().manual_seed(0))
        assert torch.equal(head_of(critic), wanted)


@pytest.mark.parametrize("lora", [None, Lora(2)], ids=["whole", "lora"])
def test_a_kind_of_model_without_a_scoring_head_is_refused(
    lora: Lora | None, small_model: Path, tmp_path: Path
) -> None:
    if lora is not None:
        pytest.importorskip("peft", reason="LoRA needs peft")
    path = save_decoder("granite", tmp_path / "model", small_model)
    with pytest.raises(ValueError, match="type 'granite' cannot be a critic or a reward model.* such as grpo"):
        build({"critic": trained(outputs=1)}, path, SMALL, device="cpu", lora=lora)


def test_explained_variance_by_hand() -> None:
    """Returns 0, 2: variance 1. Values 0, 1: errors 0, 1, variance 1/4. Values 2, 0: errors -2, 2, variance 4."""
    returns = tensor([0.0, 2.0])
    assert explained_variance(tensor([0.0, 1.0]), returns) == pytest.approx(0.75)
    assert explained_variance(tensor([2.0, 0.0]), returns) == pytest.approx(-3.0)
    assert explained_variance(returns + 5, returns) == pytest.approx(1.0)
    assert explained_variance(tensor([5.0, 5.0]), returns) == pytest.approx(0.0)
    assert explained_variance(tensor([1.0, 2.0]), tensor([3.0, 3.0])) is None
    assert explained_variance(tensor([]), tensor([])) is None


def test_a_clipped_value_is_one_without_gradient() -> None:
    old, target = torch.zeros(5), tensor([1.0, 1.0, -1.0, 0.22, 1.0])
    value = tensor([0.1, 0.3, 0.3, 0.3, -0.3]).requires_grad_()
    clipped_squared_error(value, old, target, 0.2).sum().backward()
    assert value_is_clipped(value, old, target, 0.2).tolist() == [0, 1, 0, 0, 0]
    assert value.grad is not None and (value.grad == 0).tolist() == [False, True, False, False, False]


def test_what_is_noted_of_a_critic(small_model: Path, other_model: Path) -> None:
    method = build_method("ppo", other_model)
    (first, *_) = loop(method, build_cast(method, small_model), SMALL, steps=1)
    assert {"value/explained_variance", "value/estimate", "value/clipped", "value/error"} <= first.metrics.keys()
    assert first.metrics["value/explained_variance"] < 0.5 and abs(first.metrics["value/estimate"]) < 0.2
    assert first.metrics["value/clipped"] == 0, "one update: the values are the old ones"
