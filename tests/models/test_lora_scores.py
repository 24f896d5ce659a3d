"""Critics and reward models under LoRA: shared frozen weights, adapters and a head of their own, through peft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, make_model

import burnish
from burnish.checkpoint.checkpoint import publish_model
from burnish.core.loop import loop
from burnish.core.roles import frozen, roles, trained
from burnish.core.types import Clock
from burnish.methods.table import METHODS
from burnish.models.build import Models, build
from burnish.models.load import load_model, stored_outputs
from burnish.models.lora import Lora, add_lora
from burnish.models.model import Model
from burnish.tasks.table import source

peft = pytest.importorskip("peft", reason="LoRA needs peft")

ROW = torch.tensor([5, 9, 40, 17, 33, 21, 8])
LAST = torch.arange(len(ROW)) == len(ROW) - 1


@torch.no_grad()
def score(model: Model, output: str = "score") -> float:
    return float(model.outputs([ROW.numpy()], [LAST], {output})[output])


def shaken(models: Models) -> Models:
    """All that is trained moved at random: B and the head begin as almost 0."""
    torch.manual_seed(7)
    for model in models.trained():
        for p in model.optimiser.named.values():
            p.data.add_(0.1 * torch.randn_like(p))
        model.weights_moved()
    return models


@torch.no_grad()
def theirs(base: Path, adapters: Path) -> float:
    """The score by peft and transformers alone."""
    from transformers import AutoModelForSequenceClassification

    plain = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1, dtype=torch.float32)
    return float(peft.PeftModel.from_pretrained(plain, adapters).eval()(ROW[None]).logits)


def frozen_storages(model: Model) -> dict[int, int]:
    held = {p for p in model.module.parameters() if not p.requires_grad}
    return {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in held}


def saved_reward_model(base: Path, folder: Path) -> Path:
    made = shaken(build({"rm": trained(outputs=1)}, base, SMALL, device="cpu", lora=Lora(3)))
    publish_model(made["rm"], folder)
    return folder


def test_policy_reference_critic_and_reward_model_hold_the_frozen_weights_once(
    small_model: Path, tmp_path: Path
) -> None:
    adapters = saved_reward_model(small_model, tmp_path / "rm")
    cast = roles(ref=frozen("policy"), critic=trained(outputs=1), rm=frozen(str(adapters), outputs=1))
    models = build(cast, small_model, SMALL, device="cpu", lora=Lora(2))
    base = load_model(small_model, 0, torch.device("cpu"), native=False)
    sizes = sum(p.numel() * 4 for p in base.parameters())
    shared = frozen_storages(models["ref"])
    assert sum(shared.values()) == sizes
    for name in ("policy", "critic"):
        held = frozen_storages(models[name])
        assert shared.keys() <= held.keys()
        assert sum(held.values()) - sizes <= 32 * 4  # the head as it was, beside the one that is trained
    own = frozen_storages(models["rm"])
    assert shared.keys() <= own.keys() and sum(own.values()) < 1.5 * sizes
    assert score(models["rm"]) == pytest.approx(theirs(small_model, adapters), abs=1e-5)


def test_a_fresh_critic_is_that_of_a_run_without_lora_and_learns_by_its_adapters(small_model: Path) -> None:
    method = METHODS["ppo"].build(source("sort"), n=2)
    whole = build(method.models, small_model, SMALL, device="cpu")
    models = build(method.models, small_model, SMALL, device="cpu", lora=Lora(2))
    critic = models["critic"]
    assert score(critic, "value") == pytest.approx(score(whole["critic"], "value"), abs=1e-6)
    names = set(critic.optimiser.named)
    assert all("lora_" in name or name.endswith("score.modules_to_save.default.weight") for name in names)
    assert not any("score" in name and "lora_" in name for name in names)
    before = {name: p.detach().clone() for name, p in critic.module.named_parameters()}
    list(loop(method, models, SMALL, steps=2))
    moved = {name for name, p in critic.module.named_parameters() if not torch.equal(p, before[name])}
    assert moved <= names and any("lora_B" in name for name in moved) and any("score" in name for name in moved)


def test_a_reward_model_of_adapters_is_peft_s_and_is_loaded_again(small_model: Path, tmp_path: Path) -> None:
    adapters = saved_reward_model(small_model, tmp_path / "rm")
    wanted = theirs(small_model, adapters)
    assert stored_outputs(adapters) == 1 and abs(wanted) > 0.01
    frozen_alone = build({"rm": frozen(str(adapters), outputs=1)}, small_model, SMALL, device="cpu")
    assert score(frozen_alone["rm"]) == pytest.approx(wanted, abs=1e-5)
    trained_on = build({"rm": trained(outputs=1)}, adapters, SMALL, device="cpu", lora=Lora(3))
    assert score(trained_on["rm"]) == pytest.approx(wanted, abs=1e-5)
    merged = build({"rm": trained(outputs=1)}, adapters, SMALL, device="cpu")
    assert score(merged["rm"]) == pytest.approx(wanted, abs=1e-5)


def test_a_critic_of_a_policy_of_adapters_starts_from_them(small_model: Path, tmp_path: Path) -> None:
    made = shaken(build({"policy": trained()}, small_model, SMALL, device="cpu", lora=Lora(2)))
    publish_model(made["policy"], tmp_path / "policy")
    cast = roles(critic=trained(outputs=1))
    whole = build(cast, tmp_path / "policy", SMALL, device="cpu")
    models = build(cast, tmp_path / "policy", SMALL, device="cpu", lora=Lora(2))
    assert score(models["critic"], "value") == pytest.approx(score(whole["critic"], "value"), abs=1e-6)


@pytest.mark.parametrize("kind", ["reward_model", "ppo"])
def test_a_run_with_adapters_for_all_is_saved_and_used(kind: str, small_model: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"model": str(small_model), "task": "sort", "steps": 2, "prompts": 2, "lr": 1e-2}
    options |= {"eval_tasks": 0, "device": "cpu", "lora": 2, "max_new_tokens": 6}
    result = burnish.train(kind, out=str(tmp_path / "run"), **options)
    assert result.model is not None and (result.model / "adapter_config.json").is_file()
    if kind == "reward_model":
        used = burnish.train("grpo", out=str(tmp_path / "used"), reward_model=str(result.model), n=2, **options)
        assert used.metrics and "reward" in used.metrics[0]
        merged = burnish.train(kind, out=str(tmp_path / "merged"), merge=True, **options)
        assert merged.model is not None and (merged.model / "config.json").is_file()
        alone = build({"rm": frozen(str(merged.model), outputs=1)}, small_model, SMALL, device="cpu")
        parts = build({"rm": frozen(str(result.model), outputs=1)}, small_model, SMALL, device="cpu")
        assert score(alone["rm"]) == pytest.approx(score(parts["rm"]), abs=1e-6)


def test_a_policy_that_has_not_moved_has_its_reference_s_log_probs(small_model: Path) -> None:
    """So all held-out pairs tie before training, with adapters too."""
    method = METHODS["dpo"].build(source("add"))
    models = build(method.models, small_model, SMALL, device="cpu", lora=Lora(2))
    mask = torch.arange(len(ROW)) > 0
    with torch.no_grad():
        policy, ref = (models[name].outputs([ROW.numpy()], [mask], {"logp"})["logp"] for name in ("policy", "ref"))
    assert torch.equal(policy, ref)


def test_what_is_trained_is_fp32_over_weights_in_bf16(tmp_path: Path) -> None:
    base = make_model(tmp_path / "model", tie_word_embeddings=False)
    model = load_model(base, 0, torch.device("cpu"), native=False, dtype=torch.bfloat16)
    adapted = add_lora(model, Lora(2, targets=("q_proj",), whole=("embed_tokens", "lm_head")))
    kinds = {p.requires_grad: p.dtype for p in adapted.parameters()}
    assert kinds == {True: torch.float32, False: torch.bfloat16}
    assert {p.dtype for p in adapted.parameters() if p.requires_grad} == {torch.float32}


def test_the_head_alone_is_found_under_adapters(small_model: Path) -> None:
    from burnish.learn.reward_head import all_but_head

    for lora in (None, Lora(2)):
        models = build({"rm": trained(outputs=2)}, small_model, SMALL, device="cpu", lora=lora)
        moving = [name for name in models["rm"].optimiser.named if not all_but_head(name, Clock(0, 1))]
        assert len(moving) == 1 and models["rm"].optimiser.named[moving[0]].shape == (2, 32)
