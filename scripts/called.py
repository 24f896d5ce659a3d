"""A pytest plugin that records which functions of burnish each test calls, and how long each test takes.

`pytest -p called` with CALLED=FILE in the environment writes FILE, JSON: test id -> {"seconds": ..., "calls":
["file:line", ...]}, where line is the first line of the function. Only calls are traced, not lines, so that a test
takes hardly longer. After CALLED_SECONDS no further test begins.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = str(Path.cwd() / "src" / "burnish")
_seen: set[Any] = set()
_found: dict[str, dict[str, Any]] = {}
_end = time.monotonic() + float(os.environ.get("CALLED_SECONDS", "inf"))


def _trace(frame: Any, event: str, argument: Any) -> None:
    _seen.add(frame.f_code)


def pytest_sessionstart() -> None:
    threading.settrace(_trace)
    sys.settrace(_trace)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _seen.clear()
    start = time.monotonic()
    sys.settrace(_trace)
    yield
    calls = {
        f"{c.co_filename[len(ROOT) - 7 :]}:{c.co_firstlineno}" for c in set(_seen) if c.co_filename.startswith(ROOT)
    }
    seconds = round(time.monotonic() - start, 3)
    _found[item.nodeid] = {**_found.get(item.nodeid, {}), "seconds": seconds, "calls": sorted(calls)}
    if time.monotonic() > _end:
        item.session.shouldstop = "the time is over"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed or report.skipped:
        _found.setdefault(report.nodeid, {})["outcome"] = report.outcome


def pytest_sessionfinish() -> None:
    sys.settrace(None)
    kept = {test: found for test, found in _found.items() if "calls" in found}
    Path(os.environ["CALLED"]).write_text(json.dumps(kept))
