"""Printed commands of methods that work in rounds or stages, run on few prompts: their idea acts."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import load_file

from burnish.cli import main as burnish
from burnish.methods.table import METHODS, load_all

load_all()
SMALL = ["--steps", "6", "--prompts", "3", "--max-new-tokens", "8", "--eval-tasks", "0", "--save-every", "0"]
SMALL += ["--record", "0", "--dtype", "float32", "--device", "cpu", "--quiet"]
COIN = "def coin(completions):\n    return [float(sum(map(ord, text)) % 2) for text in completions]\n"
ROUNDS = ["sppo", "inpo", "mnpo", "dno", "dno_soft", "accelerated_po", "online_iterative_dpo", "selm"]
BRIEF = ["spct", "spct_rft", "think_rm", "urpo", "urial"]
pytestmark = pytest.mark.slow


def run(command: str, out: Path, *more: str) -> int:
    """The exit code of a printed command, with a smaller size."""
    _, train, *words = command.split()
    return burnish([train, *words, *SMALL, *more, "--out", str(out)])


def trained(command: str, out: Path, *more: str) -> dict[str, torch.Tensor]:
    """The weights after a printed command, with a smaller size."""
    assert run(command, out, *more) == 0
    return load_file(out / "model" / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, other[name]) for name, tensor in one.items())


@pytest.mark.parametrize("name", ROUNDS)
def test_rounds_change_what_is_learned(name: str, tmp_path: Path) -> None:
    """As printed, copies are taken after 2 and 4 of 6 steps; the same command that never takes one learns otherwise."""
    (tmp_path / "coin.py").write_text(COIN)
    more = ("--reward", f"{tmp_path}/coin.py:coin", "--lr", "1e-4", *(() if name == "selm" else ("--n", "4")))
    if name == "dno":
        more += ("--floor", "0.5")
    as_printed = trained(METHODS[name].example, tmp_path / "printed", *more)
    assert not same(as_printed, trained(METHODS[name].example, tmp_path / "never", *more, "--sync", "1000"))


def test_the_reference_of_tr_dpo_moves(tmp_path: Path) -> None:
    moved = trained(METHODS["tr_dpo"].example, tmp_path / "tr", "--lr", "1e-4")
    stayed = trained(METHODS["tr_dpo"].example, tmp_path / "never", "--lr", "1e-4", "--sync", "512")
    assert not same(moved, stayed)
    assert same(stayed, trained("burnish train dpo", tmp_path / "dpo", "--lr", "1e-4")), "without an update it is dpo"


@pytest.mark.parametrize(("name", "metric"), [("mixed_po", "pg/loss"), ("rlep", "pg/loss")])
def test_the_second_stage_runs(name: str, metric: str, tmp_path: Path) -> None:
    (tmp_path / "coin.py").write_text(COIN)
    more = ("--reward", f"{tmp_path}/coin.py:coin") if name == "rlep" else ()
    trained(METHODS[name].example, tmp_path / "run", *more)
    from conftest import recorded

    assert any(metric in str(row) for row in recorded(tmp_path / "run").items())


@pytest.mark.parametrize("name", BRIEF)
def test_printed_commands_fit_the_model_in_the_box(name: str, tmp_path: Path) -> None:
    assert run(METHODS[name].example, tmp_path / "run", "--steps", "1") == 0


def script() -> ModuleType:
    """scripts/printed_commands.py, which knows the files that commands name and the metric of each mechanism."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
    try:
        return importlib.import_module("printed_commands")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder with the files and the model that commands name, and the hash of the weights after `dpo`."""
    folder = tmp_path_factory.mktemp("printed")
    script().prepare(folder)
    return folder, str(script().run("dpo", str(folder)).get("weights"))


@pytest.mark.parametrize("name", [name for name in script().names() if name != "dpo"])
def test_every_printed_command_runs_and_its_mechanism_acts(name: str, prepared: tuple[Path, str]) -> None:
    folder, base = prepared
    row = script().run(name, str(folder))
    assert not script().problem(row, base)
