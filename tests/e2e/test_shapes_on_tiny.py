"""What shapes do to a policy: tiny, fine-tuned on replies of two lengths or with random confidences, then trained with
and without a shape. Seeds are fixed; the margins are at most half of the differences that were measured.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import burnish
from burnish.run.train import Result
from burnish.tasks.table import source

pytestmark = pytest.mark.slow
COMMON: dict[str, Any] = {"eval_every": 0, "save_every": 0, "device": "cpu", "prompts": 8, "eval_tasks": 31}
BRIEF = 'def brief(completions, **columns):\n    return [float("step" not in text) for text in completions]\n'


def data(path: Path, replies: Sequence[str], levels: Sequence[int]) -> str:
    """Reversals whose demonstrations are drawn from `replies`."""
    dice, rows = random.Random(0), []
    for level in levels:
        for i in range(400):
            task = source(f"reverse:{level}").task("train", i)
            answer, prompt = task.given["answer"], task.prompt[0]["content"]  # type: ignore[index]
            demo = dice.choice(list(replies)).format(a=answer, c=dice.randint(1, 10))
            rows.append({"prompt": prompt, "answer": answer, "demo": demo})
    dice.shuffle(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def last(result: Result, name: str, steps: int = 3) -> float:
    return sum(row[name] for row in result.metrics[-steps:]) / steps


def first(result: Result, name: str, steps: int = 3) -> float:
    return sum(row[name] for row in result.metrics[:steps]) / steps


@pytest.fixture(scope="module")
def two_lengths(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A model that answers at once or after three idle lines, and its data."""
    folder = tmp_path_factory.mktemp("two")
    rows = data(folder / "rows.jsonl", ["answer: {a}", "step one\nstep two\nstep three\nanswer: {a}"], [3])
    trained = burnish.train(
        "sft", task=rows, out=str(folder / "sft"), **{**COMMON, "steps": 60, "lr": 1e-3, "eval_tasks": 0}
    )
    return str(trained.model), rows


@pytest.fixture(scope="module")
def unshaped(two_lengths: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Result:
    model, rows = two_lengths
    out = str(tmp_path_factory.mktemp("plain") / "run")
    return burnish.train("dr_grpo", model=model, task=rows, n=8, steps=15, out=out, **COMMON)


# Measured in the last steps: 24.1 tokens and 97% right without a shape; group_length 17.3 and 96%, early_exit 17.2 and
# 96%, target_length 16.5 and 95%.
@pytest.mark.parametrize("shape", ["group_length(0.5)", "early_exit(0.5)", "target_length(9, alpha=0.05)"])
def test_replies_become_shorter_at_equal_accuracy(
    shape: str, two_lengths: tuple[str, str], unshaped: Result, tmp_path: Path
) -> None:
    model, rows = two_lengths
    result = burnish.train(
        "dr_grpo", model=model, task=rows, n=8, steps=15, shape=shape, out=str(tmp_path / "run"), **COMMON
    )
    assert last(result, "length") < last(unshaped, "length") - 3
    assert result.after is not None and unshaped.after is not None
    assert result.after.value.mean > unshaped.after.value.mean - 0.05
    assert last(result, "correct") > last(unshaped, "correct") - 0.08


def test_a_constraint_holds_and_its_multiplier_moves(two_lengths: tuple[str, str], tmp_path: Path) -> None:
    """Measured: 8% brief replies at first, 92% at last, the multiplier 3.1, correct 98%."""
    model, rows = two_lengths
    (tmp_path / "own.py").write_text(BRIEF)
    result = burnish.train(
        "grpo",
        model=model,
        task=rows,
        n=8,
        steps=20,
        reward=f"math,{tmp_path}/own.py:brief*0",
        shape="lagrangian(at_least={'brief': 0.8}, lr=0.5)",
        out=str(tmp_path / "run"),
        **COMMON,
    )
    assert first(result, "reward/brief") < 0.4 and last(result, "reward/brief") > 0.8
    assert result.metrics[0]["multiplier/brief"] == 0 and last(result, "multiplier/brief") > 1
    assert last(result, "correct") > 0.8


def test_confidence_becomes_calibrated(tmp_path: Path) -> None:
    """Confidences are random after SFT. Measured: the Brier score falls from 0.23 to 0.06."""
    rows = data(tmp_path / "rows.jsonl", ["answer: {a}\nconfidence: {c}"], [1, 4])
    sft = burnish.train(
        "sft", task=rows, out=str(tmp_path / "sft"), **{**COMMON, "steps": 80, "lr": 1e-3, "eval_tasks": 0}
    )
    result = burnish.train(
        "dr_grpo",
        model=str(sft.model),
        task=rows,
        n=8,
        steps=25,
        lr=3e-4,
        reward="math,brier_score",
        out=str(tmp_path / "run"),
        **{**COMMON, "eval_tasks": 0},
    )
    assert first(result, "brier") > 0.15 and last(result, "brier") < first(result, "brier") / 2
    assert last(result, "confidence_stated") > 0.9


def test_copies_that_lose_become_rare(two_lengths: tuple[str, str], tmp_path: Path) -> None:
    """Measured: 30% different replies in the last steps without the shape, 56% with it, correct 95% both times."""
    model, rows = two_lengths
    common = {**COMMON, "eval_tasks": 0, "model": model, "task": rows, "n": 8, "steps": 20}
    plain = burnish.train("grpo", out=str(tmp_path / "plain"), **common)
    result = burnish.train("grpo", shape="distinct(1.0)", out=str(tmp_path / "run"), **common)
    assert last(result, "distinct_replies") > last(plain, "distinct_replies") + 0.1
    assert last(result, "correct") > last(plain, "correct") - 0.1
