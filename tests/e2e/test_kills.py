"""Runs that are killed with SIGKILL and resumed end as if nobody had killed them: scripts/kill_harness.py, in small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from guards import guards

import burnish

pytestmark = guards("checkpoint", "run", "store")

HARNESS = Path(__file__).parent.parent.parent / "scripts" / "kill_harness.py"


def kills(number: int, only: str, seed: int, out: Path) -> dict[str, Any]:
    """The harness in a process of its own: it forks, which a process with threads had better not do."""
    source = str(Path(burnish.__file__).parent.parent)
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, str(HARNESS), "--kills", str(number), "--only", only, "--seed", str(seed), "--out", str(out)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(out.read_text())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_killed_run_ends_the_same(tmp_path: Path) -> None:
    found = kills(1, "reinforce_running", 0, tmp_path / "kills.json")
    assert found["summary"]["kills"] >= 1 and found["summary"]["identical"] == found["summary"]["kills"]
    assert all(trial["same"] for trial in found["trials"])


@pytest.mark.slow
@pytest.mark.timeout(560)
@pytest.mark.parametrize("variant", ["ppo", "archer", "curriculum", "grpo-lag"])
def test_killed_runs_of_other_kinds_end_the_same(variant: str, tmp_path: Path) -> None:
    """At two of the nine points each; the file of results lets an interrupted harness go on."""
    first = kills(1, variant, 3, tmp_path / "kills.json")
    found = kills(2, variant, 3, tmp_path / "kills.json")
    assert found["trials"][: len(first["trials"])] == first["trials"]
    assert found["summary"]["kills"] >= 2 and found["summary"]["identical"] == found["summary"]["kills"]
