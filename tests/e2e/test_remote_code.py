"""Python files in a model directory are never run, whatever stdin says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import make_model
from guards import guards

pytestmark = guards("models/hub.py", "models/load.py", "models/loader.py", "models/precision.py", "models/tokenizer.py")

HOSTILE = """
import os
open(os.environ["MARKER"], "w").write("ran")
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

class Config(LlamaConfig):
    model_type = "hostile"

class Model(LlamaForCausalLM):
    config_class = Config

class Tokens(PreTrainedTokenizerFast):
    pass
"""


def changed(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))


def with_code(path: Path, model: Path, where: str) -> Path:
    """A copy of a model directory whose config or tokenizer asks for its own Python file."""
    shutil.copytree(model, path)
    (path / "hostile.py").write_text(HOSTILE)
    if where == "tokenizer":
        names = {"auto_map": {"AutoTokenizer": [None, "hostile.Tokens"]}, "tokenizer_class": "Tokens"}
        changed(path / "tokenizer_config.json", **names)
        return path
    classes = {"AutoConfig": "hostile.Config", "AutoModelForCausalLM": "hostile.Model"}
    classes["AutoModelForSequenceClassification"] = "hostile.Model"
    kind = {"model_type": "hostile"} if where == "unknown model" else {}
    changed(path / "config.json", auto_map=classes, **kind)
    return path


def trained(tmp_path: Path, model: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`burnish train` on a model, with "y" on stdin for every question."""
    command = [sys.executable, "-m", "burnish.cli", "train", *words, "--model", str(model), "--task", "sort"]
    command += [
        "--steps",
        "1",
        "--prompts",
        "2",
        "--eval-tasks",
        "0",
        "--device",
        "cpu",
        "--out",
        str(tmp_path / "run"),
    ]
    environment = {**os.environ, "MARKER": str(tmp_path / "marker"), "HF_HOME": str(tmp_path / "hub")}
    return subprocess.run(
        command, input="y\n" * 9, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("where", ["known model", "unknown model", "tokenizer"])
def test_code_in_a_model_directory_is_never_run(where: str, small_model: Path, tmp_path: Path) -> None:
    done = trained(tmp_path, with_code(tmp_path / "model", small_model, where), "sft")
    assert not (tmp_path / "marker").exists()
    said = done.stdout + done.stderr
    assert "Traceback" not in said and "[y/N]" not in said
    if where != "known model":
        assert (
            done.returncode and "needs Python code from its own directory (auto_map), which burnish never runs" in said
        )
    else:
        assert done.returncode == 0, said


def test_a_critic_on_a_directory_with_code_runs_none_of_it(tmp_path: Path) -> None:
    """Models with scalar outputs go through transformers, not through burnish's own reader."""
    model = with_code(tmp_path / "model", make_model(tmp_path / "plain"), "unknown model")
    done = trained(tmp_path, model, "ppo")
    assert done.returncode and not (tmp_path / "marker").exists()
    assert "which burnish never runs" in done.stdout + done.stderr
