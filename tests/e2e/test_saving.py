"""What a run saves is what it trained: other tools load it, and get the same numbers."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast, build_method, credited, make_model
from guards import guards
from runs import COIN, function, go, same_run, saved, tensors
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, AutoTokenizer

import burnish
from burnish.core.loop import Report
from burnish.core.types import Trace
from burnish.learn.learn import accumulate
from burnish.models.model import Model
from burnish.rollout.given import given_trace
from burnish.run.train import Observer, Run
from burnish.store.reader import open_store
from burnish.tasks.table import source

pytestmark = guards("checkpoint", "models/save.py", "models/lora.py")

TEXT = "<|user|>sort 3 1 2<|end|><|assistant|>answer: 1 2 3<|end|>"


class Holding(Observer):
    """Keeps the run, and the weights and logits of its policy at every checkpoint."""

    def __init__(self) -> None:
        self.logits: dict[str, Tensor] = {}
        self.weights: dict[str, dict[str, Tensor]] = {}

    def started(self, run: Run) -> None:
        self.run = run

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        if "policy" in self.run.models.by_name:
            policy = self.run.models["policy"]
            name = f"step-{report.clock.step + 1:06d}"
            self.logits[name] = logits_of(policy.module, policy.chat.tokenizer)
            self.weights[name] = {key: value.clone() for key, value in policy.module.state_dict().items()}

    def same(self, name: str, model: nn.Module, tokenizer: Any) -> bool:
        """The same weights bit for bit, and the same logits but for rounding: burnish's own Llama adds in another
        order.
        """
        here, there = self.weights[name], model.state_dict()
        close = torch.allclose(logits_of(model, tokenizer), self.logits[name], atol=1e-5)
        return close and here.keys() == there.keys() and all(torch.equal(here[key], there[key]) for key in here)


@torch.no_grad()
def logits_of(model: nn.Module, tokenizer: Any) -> Tensor:
    ids = torch.tensor([tokenizer.encode(TEXT, add_special_tokens=False)])
    return model(input_ids=ids).logits


def plain(path: Path) -> tuple[Any, Any]:
    """A directory loaded by plain transformers."""
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, local_files_only=True)
    return model.eval(), AutoTokenizer.from_pretrained(path, local_files_only=True)


# ------------------------------------------------------------------------------------------------------- whole weights


def test_checkpoints_and_the_final_model_load_with_transformers(small_model: Path, tmp_path: Path) -> None:
    held = Holding()
    result = go("sft", small_model, tmp_path / "run", steps=3, observer=held)
    assert result.model is not None and list(held.logits) == ["step-000001", "step-000002", "step-000003"]
    for name in held.logits:
        assert held.same(name, *plain(tmp_path / "run" / "checkpoints" / name / "policy"))
    model, tokenizer = plain(result.model)
    assert held.same("step-000003", model, tokenizer)
    assert not held.same("step-000001", model, tokenizer)
    assert not torch.equal(held.logits["step-000001"], held.logits["step-000003"])
    start, _ = plain(small_model)
    assert not torch.equal(logits_of(start, tokenizer), held.logits["step-000001"])
    chat = [{"role": "user", "content": "sort 3 1 2"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == TEXT.split("answer")[0]


def test_what_is_saved_holds_no_code_and_no_pickle(small_model: Path, tmp_path: Path) -> None:
    go("ppo", small_model, tmp_path / "run", n=2, updates=1)
    kinds = {file.suffix for file in (tmp_path / "run").rglob("*") if file.is_file()}
    assert kinds <= {".safetensors", ".json", ".sqlite", ".yaml", ".jinja"}


def test_the_final_model_is_a_model_to_start_from(small_model: Path, tmp_path: Path) -> None:
    first = go("sft", small_model, tmp_path / "first")
    held = Holding()
    assert first.model is not None
    go("dpo", first.model, tmp_path / "second", steps=1, observer=held)
    assert tensors(first.model) == _in_memory(held.run.models["ref"])


def test_the_last_few_checkpoints_are_kept(small_model: Path, tmp_path: Path) -> None:
    go("sft", small_model, tmp_path / "run", steps=5, keep=2)
    assert saved(tmp_path / "run") == ["step-000004", "step-000005"]
    go("sft", small_model, tmp_path / "other", steps=5, keep=1, save_every=2)
    assert saved(tmp_path / "other") == ["step-000005"]


def test_a_run_stopped_before_it_took_an_old_checkpoint_away_does_so_when_it_goes_on(
    small_model: Path, tmp_path: Path
) -> None:
    go("sft", small_model, tmp_path / "run", steps=5, keep=2)
    checkpoints = tmp_path / "run" / "checkpoints"
    shutil.copytree(checkpoints / "step-000004", checkpoints / "step-000003")
    shutil.rmtree(tmp_path / "run" / "model")
    burnish.resume(tmp_path / "run")
    assert saved(tmp_path / "run") == ["step-000004", "step-000005"]


def _in_memory(model: Model) -> dict[str, bytes]:
    """A model's weights in the format of `tensors`; tied weights appear once."""
    weights = {f"model.safetensors/{name}": p.numpy().tobytes() for name, p in model.module.named_parameters()}
    return {name: value for name, value in weights.items() if not name.endswith("lm_head.weight")}


# ---------------------------------------------------------------------------------------------------------------- LoRA


@pytest.fixture
def adapted(small_model: Path, tmp_path: Path) -> tuple[Path, Holding]:
    pytest.importorskip("peft")
    held = Holding()
    go("sft", small_model, tmp_path / "lora", lora=4, steps=3, lr=1e-2, observer=held)
    return tmp_path / "lora", held


def test_lora_moves_only_the_adapters(adapted: tuple[Path, Holding], small_model: Path) -> None:
    _, held = adapted
    base, _ = plain(small_model)
    before = dict(base.named_parameters())
    seen = set()
    for name, p in held.run.models["policy"].module.named_parameters():
        if "lora_" in name:
            assert p.requires_grad
            assert "lora_B" not in name or bool((p != 0).any()), f"{name} has not moved"
        else:
            original = name.removeprefix("base_model.model.").replace(".base_layer", "")
            assert not p.requires_grad and torch.equal(p, before[original]), f"{name} has moved"
            seen.add(original)
    assert seen == set(before)


def test_a_lora_checkpoint_loads_through_peft(adapted: tuple[Path, Holding], small_model: Path) -> None:
    from peft import PeftModel

    folder, held = adapted
    for path, wanted in (
        *((folder / "checkpoints" / name / "policy", wanted) for name, wanted in held.logits.items()),
        (folder / "model", held.logits["step-000003"]),
    ):
        base, _ = plain(small_model)
        model = PeftModel.from_pretrained(base, path).eval()
        assert torch.equal(logits_of(model, AutoTokenizer.from_pretrained(path)), wanted)
        assert not list(path.glob("model*.safetensors")), "the base's weights were saved again"


def test_merged_adapters_are_a_plain_model(adapted: tuple[Path, Holding], small_model: Path, tmp_path: Path) -> None:
    _, held = adapted
    result = go("sft", small_model, tmp_path / "merged", lora=4, steps=3, lr=1e-2, merge=True)
    assert result.model is not None
    model, tokenizer = plain(result.model)
    assert torch.allclose(logits_of(model, tokenizer), held.logits["step-000003"], atol=1e-5, rtol=0)
    assert not list(result.model.glob("adapter*"))
    assert list((tmp_path / "merged" / "checkpoints" / "step-000003" / "policy").glob("adapter*"))


LORA: dict[str, dict[str, object]] = {
    "grpo": {},
    "sft": {"lora_dropout": 0.2, "lora_variant": "dora", "lora_save": "lm_head"},
    "dpo": {"lora_targets": "q_proj,v_proj", "lora_variant": "rslora", "lora_alpha": 3.0},
}


@pytest.mark.parametrize("method", LORA)
def test_resuming_with_lora_is_exact(method: str, small_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    straight, halted = tmp_path / "straight", tmp_path / "halted"
    more = {"reward": function(tmp_path / "r.py", COIN, "coin")} if method == "grpo" else {}
    go(method, small_model, straight, lora=4, steps=4, lr=1e-2, **more, **LORA[method])
    shutil.copytree(straight, halted)
    shutil.rmtree(halted / "model")
    for last in ("step-000003", "step-000004"):
        shutil.rmtree(halted / "checkpoints" / last)
    burnish.resume(halted)
    same_run(straight, halted)


# -------------------------------------------------------------------------------------------------------- reward models


@pytest.fixture(scope="module")
def scorer(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Model]:
    """A trained reward model: its directory and the model."""
    held = Holding()
    result = go("reward_model", small_model, tmp_path_factory.mktemp("rm") / "run", observer=held)
    assert result.model is not None
    return result.model, held.run.models["rm"]


def traces(model: Model) -> list[Trace]:
    tasks = [source("sort").task("train", i) for i in range(4)]
    return [given_trace(task, "demo", "demo", model.chat, model.context, 0) for task in tasks]


@torch.no_grad()
def test_a_reward_model_gives_the_same_score_in_transformers(scorer: tuple[Path, Model]) -> None:
    path, model = scorer
    theirs = AutoModelForSequenceClassification.from_pretrained(path, dtype=torch.float32).eval()
    assert theirs.config.num_labels == 1
    scores = []
    for trace in traces(model):
        last = torch.arange(len(trace)) == len(trace) - 1
        ours = model.streams([trace], [last], {"score"}, 4096)[0]["score"][-1]
        assert float(ours) == pytest.approx(float(theirs(input_ids=trace.tokens[None]).logits), abs=1e-6)
        scores.append(float(ours))
    assert len(set(scores)) > 1


def test_a_reward_model_scores_for_other_methods(scorer: tuple[Path, Model], small_model: Path, tmp_path: Path) -> None:
    path, _ = scorer
    held = Holding()
    go("grpo", small_model, tmp_path / "grpo", reward_model=str(path), n=4, steps=1, observer=held)
    assert tensors(path) == _in_memory(held.run.models["rm"])
    with open_store(tmp_path / "grpo") as store:
        assert len({trace["reward"] for trace in store.traces()}) > 1
    result = go("best_of_n", small_model, tmp_path / "best", reward_model=str(path), n=4, steps=1)
    assert result.model is None and "reward" in result.metrics[0]


# --------------------------------------------------------------------------------------------- activation checkpointing


@pytest.mark.parametrize("lora", [None, 4])
def test_recomputed_activations_give_the_same_run(lora: int | None, small_model: Path, tmp_path: Path) -> None:
    """Sampling, gradient and weights: it is an option of memory and time alone."""
    if lora:
        pytest.importorskip("peft")
    reward = function(tmp_path / "r.py", COIN, "coin")
    for out, recompute in (("kept", False), ("recomputed", True)):
        go("grpo", small_model, tmp_path / out, lora=lora, reward=reward, checkpoint_activations=recompute)
    same_run(tmp_path / "kept", tmp_path / "recomputed")


def test_recomputed_activations_give_the_same_gradient_whatever_dropout_the_model_had(tmp_path: Path) -> None:
    model = make_model(tmp_path / "model", attention_dropout=0.5)
    found = []
    for recompute in ("off", "recompute"):
        method = build_method("sft", model)
        models = build_cast(method, model, replace(SMALL, checkpoint_activations=recompute))
        for phase, groups, step in credited(method, models):
            accumulate(groups, phase.learn, step)
        found.append(torch.cat([p.grad.flatten() for p in models["policy"].module.parameters() if p.grad is not None]))
    assert float(found[0].norm()) > 0 and torch.equal(*found)
