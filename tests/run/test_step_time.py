"""Predicted seconds of a step: held against runs on one H200, and against sums by hand for several GPUs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from test_memory_plan import EIGHT_B, QWEN_1_5B, SMALL, THREE_B

from burnish.cli import main
from burnish.core.roles import frozen, trained
from burnish.models.decoder_shape import DecoderShape
from burnish.models.lora import Lora
from burnish.run.cluster_plan import candidates
from burnish.run.memory_plan import Batch, Choices
from burnish.run.step_time import GPUS, Cluster, Work, decode_seconds, exchange_seconds, step_time

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results" / "large_models.json"
H200, LORA = Cluster("H200", GPUS["h200"], 1), Lora(16)
ONE, BOTH = {"policy": trained()}, {"policy": trained(), "ref": frozen()}
MISSES = {"grpo-full-135m": 0.21, "sft-lora-3b-8k checkpoint_activations=recompute": 0.15}
FEW, MANY = Work(128, 128, 256, 8), Work(256, 128, 256, 8)
LONG, ROWS = Work(16, 128, 16384, 8), Work(4, 4000, 4000, samples=False)
# case, shape, LoRA, work, choices, with a reference, whether the model was fitted to it
CASES = [
    ("sft-135m-64", SMALL, None, Work(64, 60, 140, samples=False), Choices(8192), False, True),
    ("sft-full-1.5b", QWEN_1_5B, None, Work(64, 128, 128, samples=False), Choices(4096), False, True),
    ("grpo-lora-3b beta=0.0", THREE_B, LORA, FEW, Choices(4096), False, True),
    ("grpo-lora-8b beta=0.0", EIGHT_B, LORA, FEW, Choices(2176), False, True),
    ("sft-lora-3b-8k checkpoint_activations=recompute", THREE_B, LORA, ROWS, Choices(8192, "recompute"), False, True),
    ("grpo-lora-1.5b-16k", QWEN_1_5B, LORA, LONG, Choices(5461), True, True),
    ("grpo-full-135m", SMALL, None, MANY, Choices(8192), True, False),
    ("grpo-full-1.5b", QWEN_1_5B, None, FEW, Choices(4096), False, False),
    ("grpo-lora-3b", THREE_B, LORA, FEW, Choices(4096), True, False),
    ("grpo-lora-8b", EIGHT_B, LORA, FEW, Choices(2048), True, False),
    ("sft-lora-3b-8k", THREE_B, LORA, ROWS, Choices(8192), False, False),
    (
        "grpo-lora-1.5b-16k beta=0.0 checkpoint_activations=True",
        QWEN_1_5B,
        LORA,
        LONG,
        Choices(5461, "recompute"),
        False,
        False,
    ),
    (
        "sft-qlora-8b-2k",
        EIGHT_B,
        LORA,
        Work(8, 1024, 680, samples=False),
        Choices(4096, "recompute", quantised=True),
        False,
        False,
    ),
]


def seconds(shape: DecoderShape, lora: Lora | None, work: Work, how: Choices, both: bool) -> dict[str, float]:
    roles = BOTH if both else ONE
    made = step_time(dict.fromkeys(roles, shape), roles, "policy", lora, work, how, H200)
    return {"rollout": made.rollout, "credit": made.others, "learn": made.learn}


@pytest.mark.parametrize(("name", "shape", "lora", "work", "how", "both", "fitted"), CASES)
def test_predicted_steps_are_near_measured_ones(
    name: str, shape: DecoderShape, lora: Lora | None, work: Work, how: Choices, both: bool, fitted: bool
) -> None:
    """Within 10% on six of seven runs that the model was not fitted to; MISSES lists the others, as they are."""
    stages = json.loads(RESULTS.read_text())[name]["stages_s"]
    made = seconds(shape, lora, work, how, both)
    whole = sum(stages.get(stage, 0.0) for stage in made)
    apart = sum(made.values()) / whole - 1
    if name in MISSES:
        assert apart == pytest.approx(MISSES[name], abs=0.01), "a miss has changed: update the list"
    else:
        assert abs(apart) < (0.1 if not fitted else 0.11), apart


def test_learning_takes_the_matmuls_by_hand() -> None:
    """1.5B, no attention to speak of: 3 x 2 x weights x tokens, and the head, at the fitted share of the peak."""
    work = Work(1000, 0, 1, samples=False)
    made = step_time({"policy": QWEN_1_5B}, ONE, "policy", None, work, Choices(4096), H200)
    flops = 3 * 2 * 1000 * (1_310_195_712 + 151936 * 1536)
    assert made.learn == pytest.approx(1.466 * (1 + 710 / 1536) * flops / 989e12, rel=1e-3)
    assert made.rollout == made.exchange == made.others == 0
    twice = step_time({"policy": QWEN_1_5B}, ONE, "policy", None, replace(work, rows=2000), Choices(4096), H200)
    assert twice.learn == pytest.approx(2 * made.learn)


def test_exchanges_by_hand() -> None:
    """Over 8 ranks a ring sends 7/8 of what is gathered; between machines at the speed of the network."""
    eight, two = Cluster.read("8xH100"), Cluster.read("8xH100", 2)
    work, weights = Work(64, 128, 128, samples=False).on(8), EIGHT_B.weights
    for shard, size in (("off", 8), ("optimiser", 6), ("states", 6)):
        found = exchange_seconds(EIGHT_B, None, work, Choices(4096, shard=shard), eight)
        assert found == pytest.approx(size * weights * 7 / 8 / 450e9)
    full = exchange_seconds(EIGHT_B, None, work, Choices(1024, shard="full"), eight)
    passes = 8 * 256 / 1024
    assert full == pytest.approx(passes * (4 * EIGHT_B.linear + 4 * weights) * 7 / 8 / 450e9)
    slow = exchange_seconds(EIGHT_B, None, work, Choices(4096, shard="states"), two)
    assert slow == pytest.approx(6 * weights * 15 / 16 / 50e9)
    assert exchange_seconds(EIGHT_B, None, work, Choices(4096), H200) == 0


def test_a_decode_step_reads_the_weights_and_the_keys() -> None:
    """One row: launches, and weights at 68% of the bandwidth; 16,384 tokens of keys are read half of the time."""
    short = decode_seconds(EIGHT_B, Work(1, 0, 1), GPUS["h200"], False, False)
    assert short == pytest.approx(36 * 23e-6 + 2 * EIGHT_B.weights / (0.68 * 4.8e12), rel=1e-3)
    long = decode_seconds(EIGHT_B, Work(1, 0, 16384), GPUS["h200"], False, False) / 16384
    assert long - short == pytest.approx(8192 * EIGHT_B.kv_bytes() / (0.43 * 4.8e12), rel=1e-2)


def test_a_model_that_fits_no_gpu_gets_its_weights_divided() -> None:
    """70B: 16 bytes a weight are 1.1 TB; only divided weights fit 16 GPUs of 141 GB, and 8 of 80 GB hold none of it."""
    seventy = DecoderShape(8192, 28672, 80, 64, 8, 128, 128256, False, 70_553_706_496, 68_451_041_280)
    work = Work(64, 256, 1024, samples=False)
    how = Choices(4096)
    big = candidates({"policy": seventy}, ONE, "policy", None, Batch(), work, how, Cluster.read("8xH200", 2))
    assert big[0].how.shard == "full" and big[0].fits(Cluster.read("8xH200", 2))
    assert {one.how.shard for one in big if one.fits(Cluster.read("8xH200", 2))} == {"full"}
    small = candidates({"policy": seventy}, ONE, "policy", None, Batch(), work, how, Cluster.read("8xH100"))
    assert not any(one.fits(Cluster.read("8xH100")) for one in small)


def test_a_small_model_is_left_whole() -> None:
    made = candidates({"policy": SMALL}, ONE, "policy", None, Batch(), FEW, Choices(8192), Cluster.read("8xH200"))
    assert made[0].how.activations == "off" and made[0].fits(Cluster.read("8xH200"))
    times = [round(one.time.total, 4) for one in made if one.how.shard != "full"]
    assert times == sorted(times) and {one.context for one in made} == {1}
    assert [one.how.shard for one in made[-2:]] == ["full", "full"], "which does not compute in our kernels"


@pytest.mark.parametrize("text", ["8xV100", "0xH100", "H100x8", ""])
def test_an_unknown_cluster_is_one_sentence(text: str) -> None:
    with pytest.raises(ValueError, match="it is the GPUs of one machine, such as 8xH100, of the kinds A100"):
        Cluster.read(text)


def test_the_command_prints_the_best_and_the_runners_up(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "grpo", "--model", "tiny", "--task", "sort", "--cluster", "4xH100", "--nodes", "2"]) == 0
    said = capsys.readouterr().out
    assert "on 2 x 4 H100; 128 rows a step" in said and "best:" in said and "--token-budget" in said
    assert re.search(r"optimiser +1 ", said) and "were not measured" in said
