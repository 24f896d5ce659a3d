"""Recipes with the settings of their papers: every value is checked, and the memory of each stage is that of `plan`."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from burnish.cli import main
from burnish.recipes.box import BOX, boxed
from burnish.recipes.dry_run import OF_MODELS
from burnish.recipes.recipe import read_recipe

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "hidden_act": "silu",
}
SIZED = [name for name, one in boxed().items() if one.recipe.sizes]


@pytest.fixture
def shape(tmp_path: Path) -> str:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    return str(tmp_path)


@pytest.mark.parametrize("name", SIZED)
def test_the_settings_of_a_paper_are_valid_and_plannable(
    name: str, shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every training stage has a line with its memory; a full training of 8B takes at least 16 bytes a weight."""
    assert main(["recipe", name, "--size", "real", "--model", shape, "--dry-run"]) == 0
    printed = capsys.readouterr().out
    told = yaml.safe_load(printed[: re.search(r"^\w+: [0-9.]+ GiB$", printed, re.M).start()])  # type: ignore[union-attr]
    stages = [stage for stage, options in told["stages"].items() if "method" in options]
    found = dict(re.findall(r"^(\w+): ([0-9.]+) GiB$", printed, re.M))
    assert list(found) == [stage for stage in stages if not OF_MODELS & told["stages"][stage].keys()] and all(
        float(gib) > 8.0e9 * 16 / 2**30 for gib in found.values()
    ), found
    assert all("epochs" in told["stages"][stage] and "steps" not in told["stages"][stage] for stage in stages)


def test_tulu3_has_the_settings_of_the_authors_commands() -> None:
    real = read_recipe(BOX / "tulu3.yaml", {"rlvr.prompts": 112}, size="real")
    sft, dpo, rl = (real[name].options for name in ("sft", "dpo", "rlvr"))
    assert (sft["epochs"], sft["prompts"], sft["max_length"], sft["lr"], sft["lr_warmup"]) == (2, 128, 4096, 5e-6, 0.03)
    assert (dpo["epochs"], dpo["prompts"], dpo["max_length"], dpo["lr"], dpo["beta"]) == (1, 128, 2048, 5e-7, 5)
    assert (rl["prompts"], rl["max_new_tokens"], rl["lr"], rl["kl"], rl["shape"]) == (
        112,
        2048,
        3e-7,
        0.05,
        "unfinished(-10)",
    )
    assert real.model == "meta-llama/Llama-3.1-8B" and not real.sizes


def test_an_unknown_size_is_refused_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recipe", "tulu3", "--size", "large", "--dry-run"]) == 2
    assert "recipe tulu3 has no size 'large'; its sizes are real" in capsys.readouterr().err
    plain = tmp_path / "plain.yaml"
    plain.write_text("stages: {rl: {method: grpo}}")
    assert main(["recipe", str(plain), "--size", "real", "--dry-run"]) == 2
    assert "recipe plain has no size 'real'; it has none" in capsys.readouterr().err


def test_every_recipe_in_the_box_has_its_real_size_and_says_whose_the_values_are() -> None:
    assert list(boxed()) == SIZED
    for name in SIZED:
        said = (BOX / f"{name}.yaml").read_text().partition("\nsizes:")[2]
        assert re.search(r"# .*(ours|Ours|the authors'|authors' commands)", said), name


def test_a_size_can_do_without_a_stage() -> None:
    real = read_recipe(BOX / "constitutional.yaml", size="real")
    assert real.names() == ["revised", "sft", "prefs", "rm", "rl", "measured"]


def test_qwen_math_has_the_settings_of_its_report() -> None:
    """4,096 samples of an episode at 32 a prompt are 128 prompts; updates of 512 samples are 8 of them."""
    real = read_recipe(BOX / "qwen2-5-math.yaml", size="real")["rl"].options
    assert (real["prompts"] * real["n"], real["prompts"] * real["n"] / real["minibatches"]) == (4096, 512)
    assert (real["lr"], real["beta"], real["shape"]) == (1e-5, 1e-3, "rule_first(rm, rule=success, alpha=0.5)")
