"""Reward models of real pairs beside TRL's: the same losses, the same scores, and the page has the raw file's table."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))  # last: benchmarks/agents.py is not the package agents

import reward_model_real as real  # noqa: E402

FOUND = json.loads(real.OUT.read_text())


def test_both_trainers_have_the_same_losses_and_scores() -> None:
    for one in FOUND["seeds"]:
        ours, theirs = one["loss"]["burnish"], one["loss"]["trl"]
        assert len(ours) == len(theirs) == FOUND["steps"] and real.gap(one) < 1e-5
        assert max(ours) - min(ours) > 0.1, "losses that stay where they are would agree without training"
        for side in ("chosen", "rejected"):
            assert one["scores"]["burnish"][side] == pytest.approx(one["scores"]["trl"][side], abs=1e-3)
            assert one["scores"]["burnish"][side] != pytest.approx(one["scores"]["start"][side], abs=1e-1)


def test_pairs_are_counted_by_hand() -> None:
    """One right, one wrong, one tie."""
    assert real.right({"chosen": [2.0, 1.0, 3.0], "rejected": [1.0, 2.0, 3.0]}) == [1.0, 0.0, 0.5]
    assert real.gap({"loss": {"burnish": [1.0, 2.0], "trl": [1.5, 1.75]}}) == 0.5


def test_the_page_has_the_table_of_the_raw_file() -> None:
    page = (ROOT / "docs" / "reward-models.md").read_text()
    rows = [line for line in real.table(FOUND) if line[2].isdigit()]
    assert rows and all(row in page for row in rows)
