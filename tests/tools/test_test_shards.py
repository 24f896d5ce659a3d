"""What `make test-all` leaves out after it was stopped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import shards

CONFTEST = """
import sys
sys.path.insert(0, {tests!r})
import shards

pytest_addoption = shards.add_options
pytest_configure = shards.configure

def pytest_collection_modifyitems(config, items):
    shards.split(config, items)
"""
TESTS = """
import os, pytest

@pytest.mark.parametrize("n", range(4))
def test_passes(n):
    if n == 1 and "STOP" in os.environ:
        os._exit(1)

def test_fails():
    assert "MENDED" in os.environ
"""


def run(folder: Path, *words: str, **environment: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--passed", "passed.txt", *words]
    done = subprocess.run(
        command, cwd=folder, env={"PATH": "", **environment}, capture_output=True, text=True, timeout=100, check=False
    )
    return done.stdout


def test_a_stopped_run_goes_on_with_what_has_not_passed(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST.format(tests=str(Path(shards.__file__).parent)))
    (tmp_path / "test_some.py").write_text(TESTS)
    run(tmp_path, STOP="1")
    assert (tmp_path / "passed.txt").read_text().splitlines() == ["test_some.py::test_passes[0]"]
    assert "1 failed, 3 passed" in run(tmp_path, "-n", "1")
    assert "1 passed, 4 deselected" in run(tmp_path, MENDED="1")
    parts = [run(tmp_path, "--collect-only", "--shard", f"{k}/2", "--passed", "none.txt") for k in (1, 2)]
    collected = sorted(line for part in parts for line in part.splitlines() if "::" in line)
    assert len(collected) == 5 == len(set(collected))
