"""Verifiers by name change what the embedded model does: the share of replies that satisfy them rises."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import burnish
from burnish.tasks.table import source

FAST = {"eval_every": 0, "save_every": 0, "device": "cpu", "prompts": 8, "eval_tasks": 60}


def shares(tmp_path: Path, task: str, reward: str, **options: object) -> tuple[float, float]:
    """The share of held-out replies, sampled at temperature 1, that count as correct before and after."""
    result = burnish.train("grpo", task=task, reward=reward, out=str(tmp_path / "run"), **{**FAST, **options})
    assert result.before is not None and result.after is not None
    assert result.before.sampled is not None and result.after.sampled is not None
    return result.before.sampled.accuracy.mean, result.after.sampled.accuracy.mean


def verl_rows(file: Path, count: int = 200) -> str:
    """Rows of a built-in task as verl has them: the answer in reward_model, the domain in data_source."""
    family = source("reverse")
    with file.open("w") as rows:
        for i in range(count):
            task = family.task("train", i)
            prompt = task.prompt if isinstance(task.prompt, str) else task.prompt[0]["content"]
            told = {"ground_truth": task.given["answer"], "style": "rule"}
            row = {"prompt": [{"role": "user", "content": prompt}], "data_source": "nq_reversed", "reward_model": told}
            rows.write(json.dumps(row) + "\n")
    return str(file)


def test_an_instruction_is_followed_more_often(tmp_path: Path) -> None:
    """Replies that begin with the last letters, not with the answer (six steps: from 0.42 to 0.62)."""
    before, after = shares(tmp_path, "reverse", "constraint('start_checker', start_phrase='ends')", steps=10)
    assert after - before > 0.15


@pytest.mark.slow
def test_a_format_is_kept_more_often(tmp_path: Path) -> None:
    """From 0.58 to 1.00."""
    before, after = shares(tmp_path, "reverse", r"regex('answer: [a-z ]+', whole=True)", steps=12)
    assert after - before > 0.2


@pytest.mark.slow
def test_rows_of_verl_are_verified_by_their_source(tmp_path: Path) -> None:
    """From 0.38 to 1.00."""
    before, after = shares(tmp_path, verl_rows(tmp_path / "rows.jsonl"), "auto", steps=16)
    assert after - before > 0.2
