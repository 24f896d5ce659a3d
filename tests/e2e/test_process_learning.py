"""Rewards of steps in runs: the plain sum is hacked by length, the difference of scores is not."""

from __future__ import annotations

from pathlib import Path

import pytest

import burnish
from burnish.cli import main
from burnish.store.reader import open_store


def lengths(folder: Path) -> list[float]:
    """The mean length of the replies of each step of a run."""
    with open_store(folder) as store:
        rows = store.sql("SELECT value FROM metrics WHERE name = 'length' ORDER BY step")
        return [float(row["value"]) for row in rows]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_sum_of_step_scores_is_hacked_by_length_and_their_difference_is_not(tmp_path: Path) -> None:
    """arXiv 2410.15115: with the plain scores of steps as reward the policy writes ever more steps."""
    data = str(tmp_path / "steps.jsonl")
    words = ["steps", "--task", "logic", "--count", "256", "--max-new-tokens", "96", "--device", "cpu", "-o", data]
    assert main(words) == 0
    model = burnish.train(
        "process_reward_model", model="tiny", task=data, steps=80, device="cpu", out=str(tmp_path / "prm")
    ).model
    found = {}
    for name in ("prm_steps({}, low=0)", "prm_delta({})"):
        folder = tmp_path / name.partition("(")[0]
        burnish.train(
            "grpo",
            model="tiny",
            task="logic",
            reward=f"success,{name.format(model)}",
            steps=40,
            prompts=16,
            max_new_tokens=128,
            eval_tasks=0,
            device="cpu",
            out=str(folder),
        )
        found[folder.name] = lengths(folder)
    assert found["prm_steps"][-1] > 1.5 * found["prm_steps"][0]
    assert found["prm_delta"][-1] < 1.1 * found["prm_delta"][0]
