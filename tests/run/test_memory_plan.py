"""What a run will hold in a GPU's memory: sizes counted by hand, and choices that fit."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from conftest import make_model

from burnish.cli import main
from burnish.config.options import Config, Options
from burnish.core.roles import Role, frozen, trained
from burnish.methods.table import find
from burnish.models.decoder_shape import DecoderShape
from burnish.models.known_models import resolve
from burnish.models.lora import Lora
from burnish.models.token_budget import busy
from burnish.run.memory_plan import Batch, Choices, fitted, parts_of, read_memory, shapes_of
from burnish.run.plan import plan

EIGHT_B = DecoderShape(4096, 12288, 36, 32, 8, 128, 151936, True, 8_190_735_360, 6_945_767_424)
ROLES = {"policy": trained(), "ref": frozen()}
SHAPES = {"policy": EIGHT_B, "ref": EIGHT_B}


def test_sizes_by_hand(tmp_path: Path) -> None:
    """32 wide, 64 inside, 2 layers, 4 heads of 8, 2 of keys: a token keeps 2 x 32 + 2 x 32 + 2 x 16 + 2 x 64 = 288
    numbers of two bytes a layer; keys and values are 2 x 2 layers x 2 heads x 8 x 2 bytes = 128."""
    shape = DecoderShape.of(make_model(tmp_path))
    assert (shape.hidden, shape.inner, shape.layers, shape.head_dim, shape.head_norms) == (32, 64, 2, 8, False)
    assert shape.activation_bytes() == 2 * 2 * 288 and shape.kv_bytes() == 128
    assert shape.activation_bytes(recomputed=True) == 2 * 2 * 64
    projections = 2 * (32 * 32 * 2 + 32 * 16 * 2 + 3 * 32 * 64)
    assert shape.linear == projections and shape.weights > projections
    assert shape.lora_weights(4) == 2 * 4 * (2 * 64 + 2 * 48 + 3 * 96)


def test_full_fine_tuning_takes_18_bytes_a_weight_or_12() -> None:
    wide = parts_of(SHAPES, {"policy": trained()}, None, Batch(), Choices(1024))
    assert sum(wide[name] for name in ("weights", "gradients", "optimiser")) == 18 * EIGHT_B.weights
    small = parts_of(SHAPES, {"policy": trained()}, None, Batch(), Choices(1024, optimiser="adamw8bit"))
    a_weight = sum(small[name] for name in ("weights", "gradients", "optimiser")) / EIGHT_B.weights
    assert a_weight == pytest.approx(12.03, abs=0.01)
    for held, kept, total in (("split", "adamw8bit", 10.03), ("bfloat16", "adamw8bit", 8.03), ("split", "adamw", 16)):
        how = Choices(1024, optimiser=kept, master_weights=held)
        found = parts_of(SHAPES, {"policy": trained()}, None, Batch(), how)
        sizes = [found[name] for name in ("weights", "gradients", "optimiser")]
        assert sum(sizes) / EIGHT_B.weights == pytest.approx(total, abs=0.01)


def test_activations_on_the_host_are_those_of_three_layers() -> None:
    kept, moved = (
        parts_of(SHAPES, {"policy": trained()}, None, Batch(), Choices(1024, activations=how))["activations"]
        for how in ("off", "offload")
    )
    assert moved == pytest.approx(kept * 3 / 36)


def test_under_lora_policy_and_reference_share_their_weights() -> None:
    found = parts_of(SHAPES, ROLES, Lora(16), Batch(128, 256, 16, 128), Choices(2048))
    adapters = EIGHT_B.lora_weights(16)
    assert found["weights"] == 2 * EIGHT_B.weights + 6 * adapters
    four = parts_of(SHAPES, ROLES, Lora(16), Batch(), Choices(2048, quantised=True))
    assert four["weights"] < 0.5 * found["weights"]
    assert found["KV cache"] == (128 * (256 + 32) + 16 * 128) * EIGHT_B.kv_bytes()


def test_a_critic_under_lora_is_another_set_of_adapters() -> None:
    cast = {**ROLES, "critic": trained(outputs=1)}
    found = parts_of({**SHAPES, "critic": EIGHT_B}, cast, Lora(16), Batch(), Choices(2048))
    assert found["weights"] == 2 * EIGHT_B.weights + 2 * 6 * EIGHT_B.lora_weights(16)


THREE_B = DecoderShape(2048, 11008, 36, 16, 2, 128, 151936, False, 3_085_860_864, 2_774_532_096)
SMALL = DecoderShape(576, 1536, 30, 9, 3, 64, 49152, False, 134_479_872, 106_168_320)
QWEN_1_5B = DecoderShape(1536, 8960, 28, 12, 2, 128, 151936, False, 1_543_714_304, 1_310_195_712)
LORA, NO_BATCH, ONE = Lora(16), Batch(), {"policy": trained()}
MANY, FEW = Batch(256, 256, 32, 128), Batch(128, 256, 16, 128)
MEASURED = [  # benchmarks/results/large_models.json: torch's peak in GiB on an H200
    (SMALL, ROLES, None, MANY, Choices(8192), 6.39),
    (SMALL, ROLES, None, MANY, Choices(16384), 9.99),
    (SMALL, ROLES, None, MANY, Choices(65536), 26.68),
    (SMALL, ONE, None, NO_BATCH, Choices(8192), 5.30),
    (SMALL, ROLES, None, NO_BATCH, Choices(16384), 8.38),
    (THREE_B, ROLES, LORA, FEW, Choices(4096), 17.34),
    (THREE_B, ROLES, LORA, FEW, Choices(8192), 26.07),
    (THREE_B, ONE, LORA, FEW, Choices(4096), 17.03),
    (EIGHT_B, ROLES, LORA, FEW, Choices(2048), 27.91),
    (EIGHT_B, ONE, LORA, FEW, Choices(2176), 28.48),
    (EIGHT_B, ROLES, LORA, FEW, Choices(4096), 35.35),
    (EIGHT_B, ROLES, LORA, FEW, Choices(4096, quantised=True), 26.59),
    (EIGHT_B, ONE, LORA, NO_BATCH, Choices(4096, "recompute", quantised=True), 10.40),
    (EIGHT_B, ONE, LORA, NO_BATCH, Choices(24000, "recompute", quantised=True), 24.66),  # a row at least
    (EIGHT_B, ONE, None, NO_BATCH, Choices(4096, optimiser="adamw8bit"), 110.22),
    (THREE_B, ONE, None, NO_BATCH, Choices(4096), 60.18),
    (THREE_B, ONE, None, NO_BATCH, Choices(4096, master_weights="split"), 54.50),
    (THREE_B, ONE, None, NO_BATCH, Choices(4096, master_weights="bfloat16", optimiser="adamw16bit"), 37.19),
    (THREE_B, ONE, LORA, NO_BATCH, Choices(11160), 29.24),  # the longest row
    (THREE_B, ONE, LORA, NO_BATCH, Choices(11160, "offload"), 8.33),
    (THREE_B, ONE, LORA, NO_BATCH, Choices(11160, "recompute"), 10.86),
    (QWEN_1_5B, ONE, LORA, Batch(16, 16384, 2, 128), Choices(5461, "recompute"), 15.67),
]


@pytest.mark.parametrize(("shape", "roles", "lora", "batch", "how", "gib"), MEASURED)
def test_predictions_are_within_a_tenth_of_what_was_measured(
    shape: DecoderShape, roles: dict[str, Role], lora: Lora | None, batch: Batch, how: Choices, gib: float
) -> None:
    found = sum(parts_of(dict.fromkeys(roles, shape), roles, lora, batch, how).values()) / 2**30
    assert found == pytest.approx(gib, rel=0.1)


def test_choices_are_tried_from_the_fastest_on() -> None:
    start = Choices(busy(EIGHT_B))

    def chosen(gib: float) -> Choices:
        return fitted(SHAPES, {"policy": trained()}, None, Batch(), start, int(gib * 2**30))

    assert chosen(300) == start
    assert chosen(110) == replace(start, optimiser="adamw8bit")
    assert chosen(96) == replace(start, optimiser="adamw8bit", activations="recompute")
    assert chosen(85) == replace(chosen(96), master_weights="split")
    with pytest.raises(
        ValueError, match=r"needs at least [78]\d\.\d GiB, and --memory gives it 40\.0 GiB; use --lora 16"
    ):
        chosen(40)
    with pytest.raises(ValueError, match="use --quantization nf4"):
        fitted(SHAPES, ROLES, Lora(16), Batch(), start, 10 * 2**30)


@pytest.mark.parametrize(("text", "size"), [("24GiB", 24 * 2**30), ("1.5 gb", 1_500_000_000), ("80G", 80 * 2**30)])
def test_sizes_are_read(text: str, size: int) -> None:
    assert read_memory(text) == size


@pytest.mark.parametrize("text", ["", "much", "-3GiB", "0", "3 TiBs"])
def test_other_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="it is a size such as 24GiB"):
        read_memory(text)


def test_the_command_prints_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "grpo", "--model", "tiny", "--memory", "1GiB"]) == 0
    said = capsys.readouterr().out
    assert "peak on a GPU, predicted" in said and "KV cache" in said and "--token-budget" in said
    assert "models: policy (trained), ref (frozen)" in said


@pytest.mark.parametrize(("method", "option"), [("rloo", "beta"), ("ppo", "kl"), ("grpo", "beta")])
def test_a_reference_that_is_not_loaded_takes_no_memory(method: str, option: str) -> None:
    entry, model = find(method), resolve("tiny")
    found = []
    for value in (0.05, 0.0):
        cast = plan(entry, Config(method, Options(model="tiny", task="add"), {option: value})).method.models
        found.append(parts_of(shapes_of(cast, model), cast, None, Batch(), Choices(2048))["weights"])
    assert found[0] - found[1] == 2 * shapes_of(ROLES, model)["ref"].weights  # bf16


def test_memory_that_a_reference_would_exceed_is_enough_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--model", "tiny", "--prompts", "1", "--n", "2", "--memory", "70MiB"]
    assert main(["plan", "rloo", "--beta", "0", *words]) == 0
    assert main(["plan", "rloo", *words]) != 0
    assert "needs at least" in capsys.readouterr().err
    assert main(["plan", "sft", "--model", "tiny", "--memory", "1MiB"]) == 2
    assert "needs at least" in capsys.readouterr().err
    assert main(["plan", "--help"]) == 0 and "burnish plan" in capsys.readouterr().out


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


def test_a_config_without_weights_is_enough_to_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA_8B))
    shape = DecoderShape.of(tmp_path)
    assert shape.weights == 8_030_261_248  # Llama 3.1 8B
    assert shape.linear == 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 4096 * 14336)
    assert main(["plan", "sft", "--model", str(tmp_path), "--memory", "110GiB"]) == 0
    said = capsys.readouterr().out
    assert "8,030,261,248 weights" in said and "peak on a GPU, predicted" in said and "adamw8bit" in said
    assert main(["train", "sft", "--model", str(tmp_path), "--steps", "1"]) == 2
    assert "has no *.safetensors weights" in capsys.readouterr().err
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA_8B, "model_type": "unheard"}))
    assert main(["plan", "sft", "--model", str(tmp_path)]) == 2
    assert "describes no decoder that transformers knows" in capsys.readouterr().err


def test_memory_has_a_unit_and_is_that_of_a_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "sft", "--model", "tiny", "--memory", "24"]) == 2
    assert "--memory is '24'; it is a size such as 24GiB, with its unit" in capsys.readouterr().err
    if not torch.cuda.is_available():
        assert main(["train", "sft", "--model", "tiny", "--memory", "24GiB", "--steps", "1"]) == 2
        assert "--memory plans the memory of a GPU, but the run is on the CPU; leave it out" in capsys.readouterr().err


def test_divided_weights_by_hand() -> None:
    """8 ranks: in the layers 16 bytes a weight by 8; outside of them 2 whole and 4 of gradients in a pass; and what of
    two layers is whole in bf16, with the gradient of one."""
    found = parts_of(SHAPES, {"policy": trained()}, None, Batch(), Choices(1024, shard="full", ranks=8))
    inside, outside = EIGHT_B.linear, EIGHT_B.weights - EIGHT_B.linear
    assert found["weights"] == pytest.approx(4 * inside / 8 + outside * (2 + 4 / 8))
    assert found["gradients"] == pytest.approx(4 * EIGHT_B.weights / 8 + 4 * outside)
    assert found["optimiser"] == pytest.approx(8 * EIGHT_B.weights / 8)
    assert found["gathered layers"] == pytest.approx((2 * 2 + 4) * inside / 36)
    both = parts_of(SHAPES, ROLES, Lora(16), Batch(), Choices(1024, shard="full", ranks=8))
    adapters = EIGHT_B.lora_weights(16)
    assert both["weights"] == pytest.approx(2 * (2 * inside / 8 + 2 * outside) + 4 * adapters / 8)
    assert both["optimiser"] == pytest.approx(8 * adapters / 8)
