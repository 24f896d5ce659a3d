"""How many files one command walks through (scripts/count_walk.py)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "count_walk.py"
MOST = 213  # files of `burnish train grpo`; only ever lowered, but for what a run became able to do (seats, drawing)


@pytest.mark.slow
def test_grpo_walks_through_no_more_files_than_before() -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, timeout=300, check=True)
    rows = {
        row.split()[0]: [int(number) for number in row.split()[1:]]
        for row in done.stdout.splitlines()[-40:]
        if row[-1:].isdigit()
    }
    files, lines, before, steps = rows["all"]
    assert files <= MOST and max(before, steps) < files < before + steps and lines > files
    assert rows["learn"][3] > rows["learn"][2] > 0, "learning is done in the steps"
    assert "zoo" not in rows
