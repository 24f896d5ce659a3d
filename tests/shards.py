"""A share of the tests, and which of them have passed: scripts/test_all.py resumes a share that was stopped.

    pytest --shard 2/6 --passed FILE

runs the second of six shares without the tests that FILE names, and adds to it each test that passes.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import pytest


def add_options(parser: pytest.Parser) -> None:
    parser.addoption("--shard", metavar="K/N", help="run the Kth of N shares of the tests (scripts/test_all.py)")
    parser.addoption("--passed", metavar="FILE", help="leave out the tests that FILE names; add those that pass")


def configure(config: pytest.Config) -> None:
    """Read once what had passed, for all workers: each must collect the same tests."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        config.had_passed = frozenset(worker.get("had_passed", ()))  # type: ignore[attr-defined]
        return
    file = Path(config.option.passed) if config.option.passed else None
    config.had_passed = frozenset(file.read_text().splitlines() if file and file.exists() else ())  # type: ignore[attr-defined]
    if file:
        config.pluginmanager.register(Recorder(file, config.had_passed))  # type: ignore[attr-defined]


class Recorder:
    """Writes down each test that passed, at once: a run may be stopped at any time."""

    def __init__(self, file: Path, had_passed: frozenset[str]) -> None:
        self.file, self.had_passed = file, had_passed
        self.spoilt: set[str] = set()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        node.workerinput["had_passed"] = sorted(self.had_passed)  # type: ignore[attr-defined]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.spoilt.add(report.nodeid)
        elif report.when == "teardown" and report.nodeid not in self.spoilt:
            with self.file.open("a") as lines:
                lines.write(report.nodeid + "\n")


def split(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the other shares and what had passed."""
    kept = items
    if config.option.shard:
        k, n = map(int, config.option.shard.split("/"))
        kept = [item for item in kept if zlib.crc32(shared(item).encode()) % n == k - 1]
    had_passed: frozenset[str] = config.had_passed  # type: ignore[attr-defined]
    kept = [item for item in kept if item.nodeid not in had_passed]
    if len(kept) < len(items):
        chosen = set(kept)
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = kept


def shared(item: pytest.Item) -> str:
    """What tests that share a fixture have in common: file and parameters."""
    file, _, rest = item.nodeid.partition("::")
    return file + rest[rest.find("[") :] if "[" in rest else item.nodeid
