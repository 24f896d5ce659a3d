"""Episodes that outlive a step beside ranks and opponents, as commands."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch.distributed as dist
from guards import guards

from burnish.store.reader import open_store

pytestmark = guards("compose/played_on.py", "rollout/play.py", "rollout/episode.py", "core/sharded_pass.py")
WORDS = ("--task", "guess:2", "--chunk", "4", "--max-new-tokens", "4", "--prompts", "4", "--n", "2", "--lr", "1e-5")
WORDS += ("--eval-tasks", "0", "--quiet", "--save-every", "1")


def train(model: Path, out: Path, *more: str) -> None:
    command = [sys.executable, "-m", "burnish", "train", "grpo", "--model", str(model), *WORDS, *more]
    done = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def told(out: Path) -> list[tuple[int, float, float]]:
    with open_store(out) as store:
        return [(int(m.get("unfinished", 0)), float(m["traces"]), float(m.get("turns", 0))) for m in store.metrics()]


@pytest.mark.slow
@pytest.mark.skipif(not dist.is_gloo_available(), reason="this torch has no gloo")
def test_two_ranks_play_the_episodes_of_one_process_and_resume(small_model: Path, tmp_path: Path) -> None:
    """With a chunk no clock decides: as many episodes wait after each step, and the same ones are learned from."""
    one, two, parts = tmp_path / "one", tmp_path / "two", tmp_path / "parts"
    train(small_model, one, "--steps", "4")
    train(small_model, two, "--steps", "4", "--ranks", "2")
    train(small_model, parts, "--steps", "2", "--ranks", "2")
    command = [sys.executable, "-m", "burnish", "train", "--resume", str(parts), "--steps", "4", "--quiet"]
    assert subprocess.run(command, timeout=200).returncode == 0
    assert told(one) == told(two) and told(one)[0][0] > 0
    assert sum(row[1] for row in told(parts)) == sum(row[1] for row in told(one))
