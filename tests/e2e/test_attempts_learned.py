"""Methods of several attempts at a question do what their papers say, on the embedded model."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

import burnish

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # minutes of one core, more where others share it
SCRIPT = Path(__file__).parents[2] / "benchmarks" / "self_correction.py"


def loaded() -> ModuleType:
    spec = importlib.util.spec_from_file_location("self_correction", SCRIPT)
    assert spec is not None and spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def test_ufo_is_right_earlier(tmp_path: Path) -> None:
    """29% of single replies are right before; an attempt that is right ends the episode and pays most if early."""
    options = {"prompts": 8, "n": 8, "max_new_tokens": 24, "eval_tasks": 100, "eval_every": 0, "record": 0, "seed": 0}
    result = burnish.train("ufo", task="sort:2", steps=15, out=str(tmp_path / "run"), **options)
    assert result.before is not None and result.after is not None
    assert result.after.as_sampled.mean > result.before.as_sampled.mean + 0.2
    assert result.metrics["turns"][-1] < result.metrics["turns"][0]


def test_score_makes_second_attempts_better_than_first_ones(tmp_path: Path) -> None:
    script = loaded()
    start = script.taught(tmp_path)
    before = script.attempts(start)
    after = script.trained(start, tmp_path, seed=0, alpha=10.0)
    assert after["second"] > before["second"] + 0.1 and after["second"] > after["first"] - 0.02
    assert after["spoilt"] < before["spoilt"] / 2
