"""The embedded model learns games: from the expert's episodes, then by playing, or against snapshots of itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import burnish

pytestmark = pytest.mark.timeout(900)  # minutes of one core, more where others share it
COMMON: dict[str, Any] = {"max_new_tokens": 12, "eval_tasks": 60, "eval_every": 0}


@pytest.mark.slow
def test_nim_is_learned_by_imitation_and_by_self_play(tmp_path: Path) -> None:
    """Measured with seed 0: 0% to 67% of games won against perfect play after 15 steps of sft; then 68% to 90% against
    the start, sampled.
    """
    imitated = burnish.train("sft", model="tiny", task="nim:1", steps=15, out=str(tmp_path / "sft"), **COMMON)
    assert imitated.before.value.mean < 0.1 and imitated.after.value.mean > 0.35
    options = {"model": str(tmp_path / "sft" / "model"), "opponent": "snapshot(4)", "steps": 12, "prompts": 12}
    played = burnish.train("grpo", task="nim:1", out=str(tmp_path / "play"), **options, **COMMON)
    assert played.after.as_sampled.mean > played.before.as_sampled.mean


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "imitate", "play", "imitated", "gained"),
    [
        ("form:1", 30, {"steps": 10}, 0.45, 0.1),
        ("text_nav:1", 20, {"steps": 12}, 0.5, 0.04),
        ("deal:1", 20, {"steps": 12}, 0.35, 0.08),
        ("files:1", 14, {"steps": 10, "lr": 3e-4}, 0.8, 0.03),
    ],
)
def test_games_are_learned_by_imitation_and_by_playing(
    task: str, imitate: int, play: dict[str, Any], imitated: float, gained: float, tmp_path: Path
) -> None:
    """The runs of docs/environments.md. imitated: greedy games won after sft, at least; gained: by grpo, sampled."""
    options = COMMON | {"max_new_tokens": 16, "task": task}
    first = burnish.train("sft", model="tiny", steps=imitate, lr=1e-3, out=str(tmp_path / "sft"), **options)
    assert first.before.value.mean < 0.1 and first.after.value.mean > imitated
    model = str(tmp_path / "sft" / "model")
    played = burnish.train("grpo", model=model, out=str(tmp_path / "play"), **options, **play)
    assert played.after.as_sampled.mean > played.before.as_sampled.mean + gained


@pytest.mark.slow
def test_wordle_is_learned_by_imitation_and_by_playing(tmp_path: Path) -> None:
    """Measured with seed 0: 0% to 82% of greedy games after 120 steps of sft; then 75% to 83% of sampled ones.

    Three different words of four, without a look at the marks, would win 75%.
    """
    options = COMMON | {"max_new_tokens": 8, "eval_tasks": 200, "task": "wordle:0"}
    first = burnish.train("sft", model="tiny", steps=120, prompts=32, lr=1e-3, out=str(tmp_path / "sft"), **options)
    assert first.before.value.mean < 0.1 and first.after.value.mean > 0.65
    model = str(tmp_path / "sft" / "model")
    played = burnish.train("grpo", model=model, steps=20, out=str(tmp_path / "play"), **options)
    assert played.after.as_sampled.mean > played.before.as_sampled.mean + 0.02
