"""The KV cache in the plan of a run's memory: what --kv-gib says, what --memory leaves room for, what ranks divide."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from burnish.cli import main
from burnish.core.roles import trained
from burnish.models.decoder_shape import DecoderShape
from burnish.models.lora import Lora
from burnish.run.memory_plan import Batch, Choices, fitted, kv_bytes, least_kv, parts_of

LLAMA_8B = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
Plan = Callable[..., tuple[float, str]]
LARGE = ["--prompts", "64", "--n", "16", "--max-new-tokens", "1024", "--lora", "16"]


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Plan:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))

    def told(*words: str) -> tuple[float, str]:
        """The predicted peak in GiB, and all that was said."""
        code = main(["plan", "grpo", "--model", str(tmp_path), *LARGE, *words])
        out, err = capsys.readouterr()
        found = re.search(r"predicted +([0-9.]+) GiB", out)
        return (float(found[1]) if found and code == 0 else -1.0), out + err

    return told


def test_a_smaller_cache_is_predicted_as_it_was_asked_for(plan: Plan) -> None:
    whole, limited, less = plan()[0], plan("--kv-gib", "40")[0], plan("--kv-gib", "4")[0]
    assert whole > limited + 50 and limited > less > 0
    assert plan("--kv-gib", "1000")[0] == whole
    assert (
        "holds no reply of 1,024 tokens after a prompt of 256, whose keys and values take" in plan("--kv-gib", "0.1")[1]
    )


def test_a_cache_is_chosen_that_fits_and_a_given_one_is_kept(plan: Plan) -> None:
    peak, said = plan("--memory", "40GiB")
    kv = float(re.search(r"--kv-gib ([0-9.]+)", said)[1])  # type: ignore[index]
    assert 0 < peak <= 40 and 1 < kv < 30
    assert (
        plan("--kv-gib", str(kv), *re.findall(r"--(?:token-budget|checkpoint-activations) \S+", said)[0].split())[0] > 0
    )
    assert "--kv-gib 3" in plan("--memory", "40GiB", "--kv-gib", "3")[1]
    assert "or a smaller --kv-gib" in plan("--memory", "20GiB", "--kv-gib", "19")[1]


def test_the_ranks_of_a_run_divide_the_cache(plan: Plan) -> None:
    assert plan("--ranks", "8")[0] < plan()[0] - 50


def test_a_smaller_cache_is_tried_before_anything_that_changes_what_is_computed() -> None:
    shape = DecoderShape(4096, 14336, 32, 32, 8, 128, 128256, False, 8_030_261_248, 6_979_321_856)
    batch, start = Batch(256, 1024, 16, 256), Choices(4096)
    whole = kv_bytes(shape, batch, None)
    for gib in (30, 24, 20):
        one = fitted({"policy": shape}, {"policy": trained()}, Lora(16), batch, start, gib * 2**30)
        assert one.optimiser == "adamw" and one.kv is not None and least_kv(shape, batch) <= one.kv < whole
        assert sum(parts_of({"policy": shape}, {"policy": trained()}, Lora(16), batch, one).values()) <= gib * 2**30
    with pytest.raises(ValueError, match=r"needs at least 1\d\.\d GiB, and --memory gives it 12\.0 GiB"):
        fitted({"policy": shape}, {"policy": trained()}, Lora(16), batch, start, 12 * 2**30)


def test_models_of_other_shapes_are_planned_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for told in (
        {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 100, "n_positions": 64},
        {"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2, "vocab_size": 100, "state_size": 8},
        {"model_type": "bloom", "hidden_size": 64, "n_layer": 2, "n_head": 2, "vocab_size": 100},
    ):
        (tmp_path / "config.json").write_text(json.dumps(told))
        assert main(["plan", "sft", "--model", str(tmp_path)]) == 0, told
        assert "peak on a GPU, predicted" in capsys.readouterr().out
