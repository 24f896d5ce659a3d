"""Runs with several players: opponents by name, resume, evaluation against another model, demonstrations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import burnish
from burnish.cli import main

SMALL = {"steps": 2, "prompts": 2, "n": 2, "max_new_tokens": 4, "eval_tasks": 2, "eval_every": 0, "save_every": 1}


def test_a_run_against_snapshots_resumes(small_model: Path, tmp_path: Path) -> None:
    common = {"model": small_model, "task": "nim:1", "opponent": "snapshot(1)"}
    straight = burnish.train("grpo", out=str(tmp_path / "straight"), **{**common, **SMALL, "steps": 3})
    burnish.train("grpo", out=str(tmp_path / "parts"), **common, **SMALL)
    resumed = burnish.resume(tmp_path / "parts", steps=3)
    assert resumed.metrics[2]["reward"] == straight.metrics[2]["reward"]
    assert resumed.metrics[2]["turns"] == straight.metrics[2]["turns"]


def test_a_user_simulator_and_an_evaluation_against_a_model(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    options = {"model": small_model, "task": "twenty_questions:1", "opponent": str(small_model), "out": str(out)}
    assert burnish.train("grpo", **options, **SMALL).metrics[0]["turns"] >= 1
    capsys.readouterr()
    flags = ["--task", "nim:1", "--opponent", str(small_model), "--tasks", "3", "--k", "2", "--json"]
    assert main(["eval", str(out / "model"), *flags]) == 0
    assert 0 <= json.loads(capsys.readouterr().out)["greedy"]["mean"] <= 1


def test_sft_trains_on_the_episodes_of_experts(small_model: Path, tmp_path: Path) -> None:
    options = {key: value for key, value in SMALL.items() if key != "n"}
    result = burnish.train("sft", model=small_model, task="form:1", out=str(tmp_path / "run"), **options)
    assert result.metrics[1]["sft/nll"] > 0 and result.metrics[1]["traces"] == 2


def test_a_method_without_episodes_has_no_seat(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sft plays no episodes, so --opponent has no seat"):
        burnish.train("sft", model=small_model, task="nim", opponent="start", out=str(tmp_path / "run"), steps=1)


def test_a_seat_with_adapters_of_its_own_is_saved_resumed_and_evaluated(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = {"model": small_model, "task": "nim:1", "opponent": "own", "lora": 4, "lr": 1e-2, **SMALL}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    burnish.train("grpo", out=str(whole), **{**common, "steps": 3})
    burnish.train("grpo", out=str(parts), **common)
    burnish.resume(parts, steps=3)
    for place in ("model", "seats/opponent"):
        file = f"{place}/adapter_model.safetensors"
        assert (whole / file).read_bytes() == (parts / file).read_bytes()
    capsys.readouterr()
    seat = ["--task", "nim:1", "--seat", "opponent", "--opponent", str(whole / "model")]
    assert main(["eval", str(whole / "seats" / "opponent"), *seat, "--tasks", "3", "--k", "2", "--json"]) == 0
    assert 0 <= json.loads(capsys.readouterr().out)["greedy"]["mean"] <= 1
    assert main(["eval", str(whole / "model"), "--task", "nim:1", "--opponent", "own", "--tasks", "3"]) == 2
    assert "is for training; name a model" in capsys.readouterr().err
