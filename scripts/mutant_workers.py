"""Processes that record which tests call what and run tests on planted slips, each in a copy of the tree of its own.

Used by scripts/mutants.py. A worker ends what it began by the deadline that it is given; what was cut off is no result.
"""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import multiprocessing.util
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(Path(__file__).parent))
from forked import run_pytest  # noqa: E402
from slips import Slip, planted  # noqa: E402

FAILED = ".failed"
UNKNOWN = 120.0  # seconds of a test file that was not recorded, for the time limit
LEFT_OUT = {".git", ".venv", "build", "runs", "__pycache__", ".stamps", "shared"}  # where there is no git to list files
_sound: set[str] = set()  # tests that this worker saw pass in its copy without a slip
_copy: Path  # the tree of this worker
Called = dict[str, dict[str, Any]]  # test id -> seconds, calls, and how many functions it calls in all


def workers(count: int) -> ProcessPoolExecutor:
    """Processes that have imported already what takes seconds."""
    return ProcessPoolExecutor(count, multiprocessing.get_context("fork"), _own_copy)


def record(file: str, places: frozenset[str], end: float) -> Called | None:
    """What each test of a file calls in the source files named; None where the time was over before it was known."""
    left = end - time.monotonic()
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        extra = {"CALLED": out.name, "CALLED_SECONDS": str(max(0.0, left - 5))}
        run_pytest(_copy, [file, "-p", "called"], min(1800.0, left), extra=extra)
        text = Path(out.name).read_text()
    if not text:
        return None if time.monotonic() >= end else {}
    found: Called = {}
    for test, one in json.loads(text).items():
        if "outcome" not in one:  # a test that fails or skips here notices nothing
            calls = [call for call in one["calls"] if call.rpartition(":")[0] in places]
            found[test] = {"seconds": one["seconds"], "size": len(one["calls"]), "calls": calls}
    return found


def run(slip: Slip, tests: list[str], seconds: dict[str, float], end: float) -> dict[str, Any] | None:
    """Plant the slip, run the tests that could notice it, take it away again; None where the time was over first.

    A test notices it if it fails twice with the slip and passes without it.
    """
    target, source = _copy / "src" / slip.file, (ROOT / "src" / slip.file).read_text()
    start, code = time.monotonic(), 0
    try:
        while tests and code == 0:
            limit = 90 + 5 * sum(seconds.get(test, UNKNOWN) for test in tests)
            (_copy / FAILED).unlink(missing_ok=True)
            target.write_text(planted(source, slip.number))
            code = _pytest([*tests, "-x"], limit, end)
            failed = (_copy / FAILED).read_text() if (_copy / FAILED).exists() else ""
            if code == 1 and failed and not _notices(failed, slip, target, source, end):
                tests, code = [test for test in tests if test not in (failed, failed.split("::")[0])], 0
    finally:
        target.write_text(source)
    if time.monotonic() >= end:
        return None
    how = {0: "survived", 5: "survived"}.get(code, "time" if code == -9 else "failed")
    found = dataclasses.asdict(slip) | {"before": slip.before[:160], "after": slip.after[:160], "key": slip.key}
    by = failed if how == "failed" else ""
    took = round(time.monotonic() - start)
    return found | {"noticed": how != "survived", "how": how, "tests": len(tests), "by": by, "seconds": took}


def _notices(test: str, slip: Slip, target: Path, source: str, end: float) -> bool:
    """Whether a test that failed with the slip fails with it again, and passes without it."""
    target.write_text(planted(source, slip.number))
    if _pytest([test], 600, end) == 0:
        return False
    if test in _sound:
        return True
    target.write_text(source)
    if _pytest([test], 600, end) == 0:
        _sound.add(test)
        return True
    return False


def _pytest(arguments: list[str], limit: float, end: float) -> int:
    limit = max(1.0, min(limit, end - time.monotonic()))
    return run_pytest(_copy, [*arguments, "--timeout", "60"], limit, failed=_copy / FAILED)


def _own_copy() -> None:
    global _copy
    _copy = Path(tempfile.mkdtemp(prefix="burnish-mutants-"))
    multiprocessing.util.Finalize(None, shutil.rmtree, (_copy, True), exitpriority=1)
    for name in _files():
        if (ROOT / name).is_file():
            (_copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, _copy / name)
    if shutil.which("git"):
        subprocess.run(["git", "init", "-q"], cwd=_copy, check=True)


def _files() -> list[str]:
    """The tracked and untracked files of the tree; all but caches where there is no git."""
    if shutil.which("git"):
        command = ["git", "ls-files", "-co", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if listed.returncode == 0:
            return [name for name in listed.stdout.split("\n") if name]
    found = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
    return [str(path) for path in found if not LEFT_OUT & {*path.parts}]
