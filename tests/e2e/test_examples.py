"""What the docs show works as it is shown: the examples, each for one small step."""

from __future__ import annotations

from pathlib import Path

import pytest

from burnish.cli import main

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SMALL = ["--steps", "1", "--prompts", "2", "--eval-tasks", "0", "--save-every", "0", "--quiet"]


@pytest.mark.parametrize(
    "words",
    [
        [f"{EXAMPLES}/my_method.py:thrifty_reinforce", "--task", "add", "--cost", "0.005"],
        ["grpo", "--task", "add", "--reward", f"{EXAMPLES}/my_reward.py:right_and_short"],
        [f"{EXAMPLES}/run.yaml"],
        [f"{EXAMPLES}/my_curriculum.py:second_chances", "--task", "sort"],
        ["grpo", "--task", f"{EXAMPLES}/arithmetic.jsonl", "--max-new-tokens", "8"],
        ["arpo_replay", "--task", f"{EXAMPLES}/guess_rows.py:Games", "--max-new-tokens", "8"],
        ["grpo", "--swap", "group_relative=leave_one_out(); pg=pg_clip(0.2, 0.28)"],
    ],
)
def test_an_example_runs(words: list[str], tmp_path: Path) -> None:
    assert main(["train", *words, *SMALL, "--out", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "model" / "config.json").is_file()
