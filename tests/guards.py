"""Tests that run only when what they guard has changed since they last passed.

    pytestmark = guards("kernels", "engine/subprocess", "models/hub.py")

names packages and files of src/burnish. `tests/verified.json` holds, for each such test file, the hash of these sources
and of the test itself at which it last passed as a whole. `make test` leaves the file out while the hash is the same,
runs it when it is not, and writes the new hash when it passes. `make test-all` and a file named on the command line
always run. So a mistake in a kernel is noticed by the next `make test`, and one elsewhere does not pay for it.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "burnish"
VERIFIED = TESTS / "verified.json"
DEFAULT = "not slow and not extras"  # the -m of pyproject.toml


def guards(*places: str) -> pytest.MarkDecorator:
    """The mark of a test, or of a whole file, that runs when one of these packages or files has changed."""
    return pytest.mark.guards(*places)


@cache
def _of_place(place: str) -> str:
    path = SOURCE / place
    assert path.exists(), f"a test guards src/burnish/{place}, which does not exist; name what took its place"
    files = [path] if path.is_file() else sorted(f for f in path.rglob("*") if "__pycache__" not in f.parts)
    digest = hashlib.sha256()
    for file in (file for file in files if file.is_file()):
        digest.update(file.relative_to(SOURCE).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return digest.hexdigest()


def places_of(item: pytest.Item) -> tuple[str, ...]:
    """What a test guards; nothing for one marked `always`, the representative of its file in every run."""
    if item.get_closest_marker("always"):
        return ()
    return tuple(sorted({place for mark in item.iter_markers("guards") for place in mark.args}))


def digest_of(test: Path, places: tuple[str, ...]) -> str:
    """The hash of a test file and of what it guards."""
    whole = hashlib.sha256(test.read_bytes())
    for place in places:
        whole.update(_of_place(place).encode())
    return whole.hexdigest()[:32]


def name_of(item: pytest.Item) -> str:
    """The key in verified.json: a test file and the places that its tests guard."""
    return f"{item.path.relative_to(TESTS).as_posix()} ({', '.join(places_of(item))})"


def verified() -> dict[str, str]:
    return json.loads(VERIFIED.read_text()) if VERIFIED.exists() else {}


def split(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests whose sources are those that they last passed with."""
    told = verified()
    keep, left_out = [], []
    for item in items:
        places = places_of(item)
        if not places:
            keep.append(item)
            continue
        name, now = name_of(item), digest_of(item.path, places)
        item.user_properties.append(("guards", (name, now)))
        by_default = config.option.markexpr == DEFAULT and config.args_source is pytest.Config.ArgsSource.TESTPATHS
        (left_out if by_default and told.get(name) == now else keep).append(item)
    if left_out:
        items[:] = keep
        config.hook.pytest_deselected(items=left_out)


class Verifier:
    """Collects what passed in a run of whole files, and writes it to verified.json at the end."""

    def __init__(self, config: pytest.Config) -> None:
        option = config.option
        parts = option.keyword or getattr(option, "lf", False) or any("::" in arg for arg in config.args)
        self.records = not parts and not option.shard and option.markexpr in (DEFAULT, "")
        self.passed: dict[str, str] = {}
        self.failed: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for key, value in report.user_properties:
            if key == "guards":
                name, now = value
                if report.failed:
                    self.failed.add(name)
                elif report.when == "call" and report.passed:
                    self.passed[name] = now

    def pytest_sessionfinish(self, session: Any, exitstatus: int) -> None:
        new = {name: now for name, now in self.passed.items() if name not in self.failed}
        if self.records and new and exitstatus in (0, 1):
            told = {**verified(), **new}
            VERIFIED.write_text(json.dumps(dict(sorted(told.items())), indent=1) + "\n")
