"""LoRA against peft itself: outputs, gradients, saved adapters; dropout; frozen weights that models share."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, make_model

from burnish.checkpoint.checkpoint import publish_model
from burnish.config.options import configure
from burnish.core.loop import loop, run_phase
from burnish.core.method import Method
from burnish.core.roles import ema, frozen, roles, snapshot, trained
from burnish.core.step import Step
from burnish.core.types import Clock
from burnish.learn.learn import accumulate, plan_of
from burnish.methods.table import METHODS, find
from burnish.models.build import Models, build
from burnish.models.lora import Lora, check_rank, check_stored, merged, stored_rank
from burnish.run.plan import plan
from burnish.tasks.table import source

peft = pytest.importorskip("peft", reason="LoRA needs peft")

KINDS = {
    "alpha": Lora(4, alpha=10.0),
    "rslora": Lora(4, alpha=6.0, variant="rslora"),
    "dora": Lora(3, variant="dora"),
    "targets": Lora(2, targets=("q_proj", "down_proj")),
    "head": Lora(2, whole=("lm_head",)),
    "table": Lora(2, targets=("v_proj",), whole=("embed_tokens",)),
    "dora with dropout": Lora(3, dropout=0.25, variant="dora"),
}
ROW = torch.tensor([5, 9, 40, 17, 33, 21, 8])


@pytest.fixture(scope="module")
def untied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("untied"), tie_word_embeddings=False)


@pytest.fixture(scope="module")
def other_kind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decoder that no C kernel knows, so that its frozen weights are shared on a CPU, too."""
    return make_model(tmp_path_factory.mktemp("kind"), kind="Olmo2")


def sft(**how: Any) -> Method:
    return METHODS["sft"].build(source("add"), **how)


def built(base: Path, lora: Lora, method: Method | None = None) -> Models:
    models = build((method or sft()).models, base, SMALL, device="cpu", lora=lora)
    torch.manual_seed(7)
    for p in models["policy"].module.parameters():
        if p.requires_grad:  # B begins as 0, and would hide everything else
            p.data.add_(0.1 * torch.randn_like(p))
    models["policy"].weights_moved()
    return models


def theirs(base: Path, adapters: Path) -> Any:
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    return peft.PeftModel.from_pretrained(plain, adapters, is_trainable=True).eval()


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("kind", KINDS)
def test_outputs_gradients_and_saved_adapters_are_those_of_peft(
    kind: str, tied: bool, small_model: Path, untied: Path, tmp_path: Path
) -> None:
    base = small_model if tied else untied
    model = built(base, KINDS[kind])["policy"]
    publish_model(model, tmp_path / "adapters")
    other = theirs(base, tmp_path / "adapters")
    mask = torch.arange(len(ROW)) >= 1
    ours = model.outputs([ROW.numpy()], [mask], {"logp"})["logp"]
    logits = other(ROW[None]).logits[0]
    expected = torch.log_softmax(logits.float(), -1)[:-1].gather(-1, ROW[1:, None])[:, 0]
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)
    weights = torch.linspace(-1, 1, len(expected))
    (ours * weights).sum().backward()
    (expected * weights).sum().backward()
    want = {name: p for name, p in other.named_parameters() if p.requires_grad}
    have = model.optimiser.named
    assert set(have) == set(want)
    for name, p in want.items():
        assert p.grad is not None and have[name].grad is not None, name
        torch.testing.assert_close(have[name].grad, p.grad, rtol=1e-3, atol=1e-5)
    told = json.loads((tmp_path / "adapters" / "adapter_config.json").read_text())
    assert told["r"] == KINDS[kind].rank == stored_rank(tmp_path / "adapters")
    assert told["lora_dropout"] == KINDS[kind].dropout and told["use_dora"] == (KINDS[kind].variant == "dora")


@pytest.mark.parametrize("kind", ["rslora", "dora", "head", "table"])
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_a_merged_model_and_one_that_is_loaded_from_adapters_say_the_same(
    kind: str, tied: bool, small_model: Path, untied: Path, tmp_path: Path
) -> None:
    base = small_model if tied else untied
    model = built(base, KINDS[kind])["policy"]
    publish_model(model, tmp_path / "adapters")
    publish_model(model, tmp_path / "merged", merge=True)
    mask = torch.arange(len(ROW)) >= 1
    with torch.no_grad():
        expected = model.outputs([ROW.numpy()], [mask], {"logp"})["logp"]
        for path in (tmp_path / "adapters", tmp_path / "merged"):
            loaded = build({"policy": frozen("base")}, path, SMALL, device="cpu")["policy"]
            found = loaded.outputs([ROW.numpy()], [mask], {"logp"})["logp"]
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("target", "whole"),
    [("q_proj", None), ("q_proj", "lm_head"), ("q_proj", "embed_tokens"), ("lm_head", None), ("embed_tokens", None)],
)
def test_a_merged_model_is_tied_only_with_one_table(
    target: str, whole: str | None, small_model: Path, tmp_path: Path
) -> None:
    """Adapters of peft may train or adapt the head or the table of a tied model alone. Transformers takes the table for
    the head of a model that says it is tied, whatever the file holds."""
    from transformers import AutoModelForCausalLM

    plain = AutoModelForCausalLM.from_pretrained(small_model, dtype=torch.float32)
    config = peft.LoraConfig(r=2, target_modules=[target], modules_to_save=[whole] if whole else None)
    adapted = peft.get_peft_model(plain, config)
    torch.manual_seed(7)
    with torch.no_grad():
        for p in adapted.parameters():
            if p.requires_grad:
                p.add_(0.1 * torch.randn_like(p))
    adapted.save_pretrained(tmp_path / "adapters")
    told = json.loads((tmp_path / "adapters" / "adapter_config.json").read_text())
    told["base_model_name_or_path"] = str(small_model)
    (tmp_path / "adapters" / "adapter_config.json").write_text(json.dumps(told))
    with torch.no_grad():
        expected = adapted.eval()(ROW[None]).logits[0]
    model = build({"policy": trained()}, tmp_path / "adapters", SMALL, device="cpu", lora=Lora(2))["policy"]
    publish_model(model, tmp_path / "merged", merge=True)
    assert json.loads((tmp_path / "merged" / "config.json").read_text())["tie_word_embeddings"] == (
        whole is None and target == "q_proj"
    )
    with torch.no_grad():
        found = AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype=torch.float32).eval()(ROW[None])
    torch.testing.assert_close(found.logits[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("trained_alone", [True, False])
def test_a_merged_model_says_itself_that_it_is_not_tied(
    trained_alone: bool, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """peft before 0.19 leaves the word of the configuration as it was, whatever became of the tables."""
    adapts = "lm_head" if trained_alone else "q_proj"
    module: Any = built(small_model, Lora(2, targets=(adapts,)))["policy"].module
    merge = type(module.base_model).merge_and_unload

    def older(self: Any, *arguments: Any, **named: Any) -> Any:
        plain = merge(self, *arguments, **named)
        plain.config.tie_word_embeddings = True
        return plain

    monkeypatch.setattr(type(module.base_model), "merge_and_unload", older)
    plain: Any = merged(module)
    apart = not torch.equal(plain.get_output_embeddings().weight, plain.get_input_embeddings().weight)
    assert apart == trained_alone and plain.config.tie_word_embeddings == (not trained_alone)


def gradient(models: Models, method: Method, *, step: int = 0, budget: int = 4096) -> dict[str, torch.Tensor]:
    now = Step(Clock(step, 4), models, replace(SMALL, token_budget=budget))
    phase = method.phases[0]
    groups = run_phase(replace(phase, learn=plan_of(phase).with_terms()), Step(Clock(0, 4), models, SMALL), {}, [])
    models["policy"].optimiser.zero()
    accumulate(groups, plan_of(phase), now)
    return {name: p.grad.clone() for name, p in models["policy"].optimiser.named.items() if p.grad is not None}


def test_dropout_belongs_to_the_step_and_not_to_the_micro_batch(small_model: Path) -> None:
    method = sft()
    models = built(small_model, Lora(4, dropout=0.3))
    models["policy"].module.double()
    models["policy"].weights_moved()
    whole, pieces = gradient(models, method), gradient(models, method, budget=20)
    assert all(torch.allclose(whole[name], pieces[name], rtol=1e-6, atol=1e-12) for name in whole)
    another = gradient(models, method, step=1)
    assert not all(torch.allclose(whole[name], another[name]) for name in whole)
    downs = [g for name, g in whole.items() if "lora_A" in name]
    dropped = torch.cat([(g == 0).all(0) for g in downs]).float().mean()
    assert 0.2 < float(dropped) < 0.4  # inputs of A that the step left out
    plain = built(small_model, Lora(4))["policy"]
    mask = torch.arange(len(ROW)) >= 1
    with torch.no_grad():  # outside of an update nothing is left out
        own, other = (m.outputs([ROW.numpy()], [mask], {"logp"})["logp"] for m in (models["policy"], plain))
    torch.testing.assert_close(own.float(), other.float(), rtol=1e-4, atol=1e-5)


def storages(models: Models) -> dict[int, int]:
    return {
        p.untyped_storage().data_ptr(): p.untyped_storage().nbytes()
        for model in models
        for p in model.module.parameters()
    }


def test_policy_reference_and_followers_hold_the_frozen_weights_once(other_kind: Path) -> None:
    dpo = METHODS["dpo"].build(source("add"))
    alone = storages(build({"policy": frozen("base")}, other_kind, SMALL, device="cpu"))
    models = build(dpo.models, other_kind, SMALL, device="cpu", lora=Lora(2))
    adapters = {p.data_ptr(): p.numel() * 4 for p in models["policy"].optimiser.named.values()}
    assert sum(storages(models).values()) == sum(alone.values()) + sum(adapters.values())
    followers = roles(ref=frozen("policy"), ema=ema("policy", 0.5), past=snapshot("policy"))
    many = build(followers, other_kind, SMALL, device="cpu", lora=Lora(2))
    assert sum(storages(many).values()) == sum(alone.values()) + 3 * sum(adapters.values())


def test_followers_follow_the_adapters(small_model: Path) -> None:
    followers = roles(ema=ema("policy", 0.75), past=snapshot("policy"))
    method = replace(sft(), models=followers)
    models = build(followers, small_model, SMALL, device="cpu", lora=Lora(2))
    start = {name: p.detach().clone() for name, p in models["policy"].module.named_parameters()}
    list(loop(method, models, SMALL, steps=1))
    moved, average = (dict(models[name].module.named_parameters()) for name in ("policy", "ema"))
    for name, p in models["past"].module.named_parameters():
        assert torch.equal(p, moved[name])
        torch.testing.assert_close(average[name], start[name] + 0.25 * (moved[name] - start[name]))
        assert torch.equal(p, start[name]) == ("lora_B" not in name), name  # A follows when B is no longer 0


def test_adapters_are_trained_on_and_their_start_is_the_reference(small_model: Path, tmp_path: Path) -> None:
    publish_model(built(small_model, Lora(3, variant="rslora"))["policy"], tmp_path / "adapters")
    for file in (tmp_path / "adapters").glob("tokenizer*"):
        file.unlink()  # as peft saves them
    dpo = METHODS["dpo"].build(source("add"))
    models = build(dpo.models, tmp_path / "adapters", SMALL, device="cpu", lora=Lora(3))
    mask = torch.arange(len(ROW)) >= 1
    with torch.no_grad():
        policy, ref = (models[name].outputs([ROW.numpy()], [mask], {"logp"})["logp"] for name in ("policy", "ref"))
        other = torch.log_softmax(theirs(small_model, tmp_path / "adapters")(ROW[None]).logits[0], -1)
    assert torch.equal(policy, ref)
    torch.testing.assert_close(policy, other[:-1].gather(-1, ROW[1:, None])[:, 0], rtol=1e-4, atol=1e-5)
    before = {name: p.detach().clone() for name, p in models["ref"].module.named_parameters()}
    list(loop(dpo, models, SMALL, steps=1))
    assert all(torch.equal(p, before[name]) for name, p in models["ref"].module.named_parameters())
    publish_model(models["policy"], tmp_path / "more")
    assert json.loads((tmp_path / "more" / "adapter_config.json").read_text())["use_rslora"]
    assert theirs(small_model, tmp_path / "more") is not None


def test_the_dropout_is_that_of_the_run_and_not_of_the_stored_adapters(small_model: Path, tmp_path: Path) -> None:
    """SFT with dropout, then GRPO without: with dropout the trainer would not find the sampler's log-probs."""
    publish_model(built(small_model, Lora(3, dropout=0.4))["policy"], tmp_path / "first")
    grpo = METHODS["grpo"].build(source("add"), n=4)
    models = build(grpo.models, tmp_path / "first", SMALL, device="cpu", lora=Lora(3))
    report = next(loop(grpo, models, SMALL, steps=1))
    assert report.metrics["mismatch/logp"] < 1e-5
    publish_model(models["policy"], tmp_path / "second")
    assert json.loads((tmp_path / "second" / "adapter_config.json").read_text())["lora_dropout"] == 0
    on = build(sft().models, tmp_path / "second", SMALL, device="cpu", lora=Lora(3, dropout=0.4))
    off = build(sft().models, tmp_path / "second", SMALL, device="cpu", lora=Lora(3))
    one, other = gradient(on, sft()), gradient(off, sft())
    assert any(not torch.equal(one[name], other[name]) for name in other)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (Lora(4), "of rank 3; --lora 3 goes on training them"),
        (Lora(3, alpha=5), "with alpha 9.0, and --lora-alpha 5 cannot change them; leave --lora-alpha out"),
        (Lora(3, variant="dora"), "with variant rslora, and --lora-variant dora"),
        (Lora(3, targets=("q_proj",)), "with targets q_proj,v_proj, and --lora-targets q_proj"),
        (Lora(3, whole=("lm_head",)), "with save none, and --lora-save lm_head"),
    ],
)
def test_flags_that_stored_adapters_contradict_are_refused(
    asked: Lora, said: str, small_model: Path, tmp_path: Path
) -> None:
    made = Lora(3, alpha=9.0, variant="rslora", targets=("q_proj", "v_proj"))
    publish_model(built(small_model, made)["policy"], tmp_path / "adapters")
    check_stored(tmp_path / "adapters", Lora(3))
    check_stored(tmp_path / "adapters", replace(made, targets=("v_proj", "q_proj"), dropout=0.1))
    with pytest.raises(ValueError, match=re.escape(said)):
        check_stored(tmp_path / "adapters", asked)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (
            {"lora_r": 8, "lora_alpha": 32, "lora_dropout": 0.05, "lora_target_modules": ["q_proj", "v_proj"]},
            {"lora": 8, "lora_alpha": 32.0, "lora_dropout": 0.05, "lora_targets": "q_proj,v_proj"},
        ),
        (
            {"stage": "sft", "finetuning_type": "lora", "lora_rank": 8, "lora_target": "all", "use_rslora": True}
            | {"additional_target": "embed_tokens,lm_head"},
            {"lora": 8, "lora_targets": "all-linear", "lora_variant": "rslora", "lora_save": "embed_tokens,lm_head"},
        ),
        (
            {"base_model": "x", "adapter": "lora", "lora_r": 4, "lora_target_linear": True, "peft_use_dora": True}
            | {"lora_modules_to_save": ["embed_tokens"]},
            {"lora": 4, "lora_targets": "all-linear", "lora_variant": "dora", "lora_save": "embed_tokens"},
        ),
        ({"finetuning_type": "full", "stage": "sft", "lora_rank": 8, "lora_alpha": 16}, {}),
        ({"lora_alpha": 16}, {}),
    ],
    ids=["TRL", "LLaMA-Factory", "Axolotl", "full", "no rank"],
)
def test_adapters_of_other_libraries_are_imported(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    from burnish.migrate.translate import translate

    found = translate(theirs, "sft").options
    assert {name: value for name, value in found.items() if name.startswith("lora")} == ours


def test_options_become_adapters() -> None:
    from burnish.config.options import configure
    from burnish.methods.table import find

    words = {"lora": "8", "lora_alpha": "4", "lora_dropout": "0.1", "lora_targets": "q_proj, v_proj"}
    options = configure(find("sft"), "sft", {**words, "lora_variant": "dora", "lora_save": "lm_head"}).options
    assert options.adapters() == Lora(8, 4.0, 0.1, ("q_proj", "v_proj"), "dora", ("lm_head",))
    assert configure(find("sft"), "sft", {}).options.adapters() is None
    with pytest.raises(ValueError, match="option 'lora_dropout' is 1.0; it must be at least 0 and below 1"):
        configure(find("sft"), "sft", {"lora": 8, "lora_dropout": 1.0})


def test_layers_that_are_not_there_are_named(small_model: Path) -> None:
    with pytest.raises(ValueError, match=r"--lora-targets nothing cannot be adapted .*the linear layers are .*q_proj"):
        build(sft().models, small_model, SMALL, device="cpu", lora=Lora(2, targets=("nothing",)))
    with pytest.raises(ValueError, match=r"--lora-save names 'head', which the model does not have; it has .*lm_head"):
        build(sft().models, small_model, SMALL, device="cpu", lora=Lora(2, whole=("head",)))
    for bad, said in (
        ({"rank": 0}, "rank of 0"),
        ({"dropout": 1.0}, "dropout of 1.0"),
        ({"variant": "x"}, "variant 'x'"),
    ):
        with pytest.raises(ValueError, match=said):
            Lora(**bad)


def damaged(folder: Path, how: str) -> None:
    from safetensors.torch import load_file, save_file

    weights, config = folder / "adapter_model.safetensors", folder / "adapter_config.json"
    if how == "cut":
        weights.write_bytes(weights.read_bytes()[:300])
    elif how == "none":
        weights.unlink()
    elif how == "names":
        save_file({f"other.{name}": w for name, w in load_file(weights).items()}, weights)
    elif how == "shape":
        save_file({name: w[..., :-1].contiguous() for name, w in load_file(weights).items()}, weights)
    else:
        config.write_text("{oops")


@pytest.mark.parametrize("trained_on", [True, False], ids=["trained on", "merged"])
@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("cut", "cannot be added to the model .*; they are damaged, or were trained on another model"),
        ("names", "cannot be added to the model .no tensor is called base_model.*lora_A"),
        ("shape", r"cannot be added to the model .size mismatch for \S*lora_\S*; they"),
        ("none", "no adapter_model.safetensors; pass a directory that peft's save_pretrained wrote"),
        ("config", "adapter_config.json is not a JSON object"),
    ],
)
def test_adapters_that_are_not_whole_are_one_sentence(
    how: str, message: str, trained_on: bool, small_model: Path, tmp_path: Path
) -> None:
    from burnish.models.known_models import resolve

    publish_model(built(small_model, Lora(3))["policy"], tmp_path / "adapters")
    damaged(tmp_path / "adapters", how)
    with pytest.raises(ValueError, match=message) as found:
        build(
            sft().models, resolve(str(tmp_path / "adapters")), SMALL, device="cpu", lora=Lora(3) if trained_on else None
        )
    assert "\n" not in str(found.value) and len(str(found.value)) < 500


def test_a_rank_that_no_layer_has_is_refused_before_anything_is_loaded(small_model: Path) -> None:
    """The widest layer of the small model is its vocabulary, of 260 tokens."""
    check_rank(small_model, Lora(rank=260))
    with pytest.raises(ValueError, match=r"a LoRA rank of 261 is more than the widest layer of .* has \(260\)"):
        check_rank(small_model, Lora(rank=261))
    entry = find("grpo")
    with pytest.raises(ValueError, match="a LoRA rank of 1000000000 is more than"):
        plan(entry, configure(entry, "grpo", {"model": str(small_model), "task": "sort", "lora": 10**9}), loads=False)
