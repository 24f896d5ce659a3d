"""Numbers of memory in the docs are what `burnish plan` predicts today."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from burnish.cli import main

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
from write_hardware_table import METHODS, MODELS, described, peak  # noqa: E402

TUTORIAL = (ROOT / "docs" / "tutorials" / "09_lora.ipynb").read_text()
TUTORIAL_ROWS = {
    "all weights, AdamW": "",
    "all weights, `--optimiser adamw8bit --master-weights split`": "--optimiser adamw8bit --master-weights split",
    "`--lora 16`": "--lora 16",
    "`--lora 16 --quantization nf4`": "--lora 16 --quantization nf4",
}


@pytest.fixture
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text(json.dumps(described(MODELS[request.param])))
    return tmp_path


@pytest.mark.parametrize("model", ["Llama-3.1-8B"], indirect=True)
@pytest.mark.parametrize("row", TUTORIAL_ROWS)
def test_the_table_of_the_tutorial_is_the_plan(row: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "grpo",
        "--model",
        str(model),
        "--task",
        "add",
        "--checkpoint-activations",
        "on",
        "--max-new-tokens",
        "512",
    ]
    assert main(["plan", *words, *TUTORIAL_ROWS[row].split()]) == 0
    said = capsys.readouterr().out
    predicted = re.search(r"predicted\s+([0-9.]+) GiB", said)
    assert predicted and f"| {row} |" in TUTORIAL
    cells = TUTORIAL.partition(f"| {row} |")[2].split("|")
    assert float(cells[2].split()[0]) == pytest.approx(float(predicted[1]), abs=0.06)


@pytest.mark.parametrize("model", ["SmolLM2-135M", "Llama-3.1-8B"], indirect=True)
@pytest.mark.parametrize("method", ["sft", "grpo, QLoRA", "ppo"])
def test_the_table_of_hardware_is_the_plan(method: str, model: Path, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["model"]
    line = next(
        line for line in (ROOT / "docs" / "hardware.md").read_text().splitlines() if line.startswith(f"| {name} ")
    )
    written = line.split("|")[2:-1][list(METHODS).index(method)]
    assert f"{peak(model, METHODS[method]):.1f}" == written.strip()


@pytest.mark.parametrize("model", ["Llama-3.1-8B"], indirect=True)
def test_bytes_a_weight_are_those_of_the_page(model: Path) -> None:
    """8-bit moments save 6 bytes a weight, split master weights 2: of 8.03 billion 44.9 and 15.0 GiB."""
    weights = 8_030_261_248 / 2**30
    common = "grpo --max-new-tokens 512"
    plain, small, both = (
        peak(model, f"{common} {more}")
        for more in ("", "--optimiser adamw8bit", "--optimiser adamw8bit --master-weights split")
    )
    assert plain - small == pytest.approx(6 * weights, rel=0.02)
    assert small - both == pytest.approx(2 * weights, rel=0.03)
