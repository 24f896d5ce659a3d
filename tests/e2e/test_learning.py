"""Every method gets better at something on the embedded model: by a margin that noise cannot cross, in seconds.

The evaluation has 200 held-out tasks, so its standard error is below 3.6 points; every margin asked for is at least 10
points, and every run here clears its own by a wide distance (measured gains stand beside it).
"""

from __future__ import annotations

from pathlib import Path

import pytest

import burnish

FAST = {"eval_every": 0, "save_every": 0, "device": "cpu"}


def gain(tmp_path: Path, method: str, **options: object) -> float:
    result = burnish.train(method, out=str(tmp_path / method), **{**FAST, **options})
    assert result.before is not None and result.after is not None
    return result.after.as_sampled.mean - result.before.as_sampled.mean


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "options", "margin"),
    [
        ("grpo", {"task": "reverse", "steps": 16}, 0.25),
        ("sft", {"task": "add", "steps": 10}, 0.25),
        ("dpo", {"task": "add", "steps": 30}, 0.12),
        ("online_dpo", {"task": "reverse", "steps": 30, "n": 4}, 0.12),
        ("ppo", {"task": "reverse", "steps": 10, "n": 4}, 0.25),
        ("chord", {"task": "add", "steps": 6}, 0.25),
        ("chord_phi", {"task": "reverse", "steps": 10}, 0.25),
        ("prefix_rft", {"task": "reverse", "steps": 10}, 0.25),
        ("best_of_n_distill", {"task": "reverse", "steps": 8, "n": 8}, 0.25),
        ("best_of_n", {"task": "reverse", "steps": 1, "n": 16}, 0.4),
        ("reward_model", {"task": "reverse", "steps": 30}, 0.15),
    ],
)
def test_it_gets_better(method: str, options: dict, margin: float, tmp_path: Path) -> None:
    assert gain(tmp_path, method, **options) > margin


@pytest.mark.slow
def test_a_student_learns_from_its_teacher(tmp_path: Path) -> None:
    """A teacher sharpened by SFT, distilled into the model it came from."""
    teacher = burnish.train("sft", task="reverse", steps=10, out=str(tmp_path / "teacher"), **FAST)
    assert gain(tmp_path, "gkd", task="reverse", steps=20, teacher=str(teacher.model)) > 0.25


@pytest.mark.slow
def test_a_reward_model_trained_on_pairs_teaches_a_policy(tmp_path: Path) -> None:
    rm = burnish.train("reward_model", task="reverse", steps=40, out=str(tmp_path / "rm"), **FAST)
    assert gain(tmp_path, "grpo", task="reverse", steps=16, reward_model=str(rm.model)) > 0.15


def test_grpo_learns_in_a_few_steps(tmp_path: Path) -> None:
    """The fast one: twelve steps on reversal."""
    assert gain(tmp_path, "grpo", task="reverse", steps=12, prompts=8, eval_tasks=100) > 0.2
