"""The compiled CPU kernels on the disk: a private cache, hashes that are checked before loading, and
what is rebuilt.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from guards import guards

from burnish.kernels.cpu import build, kernel_cache

pytestmark = guards("kernels/cpu")

needs_kernels = pytest.mark.skipif(build.kernels() is None, reason=f"no kernels here: {build.why_not()}")
SAYS = "from burnish.kernels.cpu import build; print(build.kernels() is not None, build.why_not())"
MADE = "from burnish.kernels.cpu import build; m = build.made_by(); print(m.sha256, m.path.parent, m.note)"
PLANTED = "__attribute__((constructor)) static void run(void) { __builtin_trap(); }"  # kills the process that loads it


def said(home: Path, code: str = SAYS, **environment: str) -> str:
    """What a new process with this cache prints; a crash in it is an error here."""
    changed = {**os.environ, "BURNISH_HOME": str(home), **environment}
    done = subprocess.run([sys.executable, "-c", code], env=changed, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def quick_compiler(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine's compiler without optimisation: these tests build often."""
    compiler = tmp_path_factory.getbasetemp() / "quick-cc"
    compiler.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    compiler.chmod(0o700)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.delenv("BURNISH_COMPILE", raising=False)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for the cache."""
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path))
    return tmp_path


def made() -> kernel_cache.Library:
    """As a new process would find or build it; its file is what its hash says."""
    with kernel_cache.library() as library:
        assert kernel_cache._hash(library.path.read_bytes()) == library.sha256
        return library


def files(home: Path) -> tuple[Path, Path]:
    """The library and its record: nothing else may lie there."""
    record, library = sorted((home / "kernels").iterdir(), key=lambda file: file.suffix)
    assert record.suffix == ".json" and library.suffix == ".so"
    return library, record


@needs_kernels
def test_kernels_are_built_once_and_kept(home: Path) -> None:
    first = made()
    before, (library, record) = first.path.stat(), files(home)
    assert made() == first and files(home) == (library, record) and library == first.path
    assert (library.stat().st_mtime_ns, library.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert said(home, MADE) == f"{first.sha256} {home / 'kernels'}"  # and a new process loads it
    assert json.loads(record.read_text())["sha256"] == first.sha256


@needs_kernels
def test_the_cache_is_private(home: Path) -> None:
    old = os.umask(0)
    try:
        made()
    finally:
        os.umask(old)
    folder = home / "kernels"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not any(file.stat().st_mode & 0o022 for file in folder.iterdir())
    folder.chmod(0o755)  # others can look, but not write: what lies there is still ours
    assert made().path.parent == folder and folder.stat().st_mode & 0o777 == 0o700


def planted(library: Path, record: Path) -> None:
    source = library.with_suffix(".c")
    source.write_text(PLANTED)
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    source.unlink()


def linked(library: Path, record: Path) -> None:
    content = library.read_bytes()
    library.unlink()
    library.symlink_to("elsewhere")
    library.with_name("elsewhere").write_bytes(content)


def in_place_of(library: Path, record: Path) -> None:
    library.unlink()
    library.mkdir()


def piped(library: Path, record: Path) -> None:
    record.unlink()
    os.mkfifo(record)


DAMAGE: dict[str, Callable[[Path, Path], object]] = {
    "emptied": lambda library, record: library.write_bytes(b""),
    "garbage": lambda library, record: library.write_bytes(b"garbage" * 9999),
    "truncated": lambda library, record: os.truncate(library, library.stat().st_size // 2),
    "planted": planted,
    "removed": lambda library, record: library.unlink(),
    "a link": linked,
    "a directory": in_place_of,
    "writable by others": lambda library, record: library.chmod(0o777),
    "no record": lambda library, record: record.unlink(),
    "an empty record": lambda library, record: record.write_text(""),
    "a list for a record": lambda library, record: record.write_text("[]"),
    "a record writable by others": lambda library, record: record.chmod(0o666),
    "a FIFO for a record": piped,
}


@needs_kernels
@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_wrong_is_built_again(damage: str, home: Path) -> None:
    """A build is repeatable: what is built again has the same hash, so a resumed run has the same bits."""
    first = made()
    DAMAGE[damage](*files(home))
    assert made() == first
    for left in (home / "kernels").glob("elsewhere"):
        left.unlink()
    library, record = files(home)
    assert library.is_file() and not library.is_symlink() and not library.stat().st_mode & 0o022
    assert json.loads(record.read_text())["sha256"] == first.sha256


@needs_kernels
@pytest.mark.parametrize("damage", ["truncated", "planted"])
def test_what_would_kill_the_process_is_not_loaded(damage: str, home: Path) -> None:
    first = made()
    DAMAGE[damage](*files(home))
    assert said(home, MADE).split()[0] == first.sha256


@needs_kernels
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702])
def test_a_cache_that_others_can_write_to_is_not_used(mode: int, home: Path) -> None:
    """The library and its record could both be planted there."""
    first = made()
    library, record = files(home)
    planted(library, record)
    forged = {**json.loads(record.read_text()), "sha256": kernel_cache._hash(library.read_bytes())}
    record.write_text(json.dumps(forged))
    library.rename(library.with_name(f"kernels-{forged['sha256'][:16]}.so"))
    assert made().sha256 == forged["sha256"]  # it would be believed in a private cache
    (home / "kernels").chmod(mode)
    found = made()
    assert found.sha256 == first.sha256 and "can be written to by others" in found.note
    assert home not in found.path.parents and not found.path.exists()  # built for this process, and taken away again


@needs_kernels
def test_a_cache_of_another_user_is_not_used(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made()
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    found = made()
    assert home not in found.path.parents and found.note == f"{home / 'kernels'} belongs to another user"


@needs_kernels
def test_a_cache_that_cannot_be_made_is_done_without(home: Path) -> None:
    (home / "kernels").write_text("a file")
    assert "kernels" in made().note


@needs_kernels
def test_the_compiler_s_version_is_part_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same path may be another compiler tomorrow."""
    compiler = tmp_path / "cc"
    keys = set()
    for version in ("12.2.0", "13.1.0"):
        compiler.write_text(f"#!/bin/sh\necho cc {version}\n")
        compiler.chmod(0o700)
        monkeypatch.setenv("CC", str(compiler))
        assert kernel_cache.recipe().version == f"cc {version}"
        keys.add(kernel_cache.recipe().key)
    assert len(keys) == 2


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("BURNISH_COMPILE", "0", r"\$BURNISH_COMPILE is 0"),
        ("CC", "/no/compiler", "/no/compiler did not work"),
        ("CC", "false", "false did not compile the kernels"),
    ],
)
def test_without_kernels_there_is_a_reason(
    variable: str, value: str, reason: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(kernel_cache.Refused, match=reason):
        made()
    assert not list(home.glob("kernels/*"))


def test_a_process_says_why_it_has_none(home: Path) -> None:
    assert said(home, BURNISH_COMPILE="0") == "False $BURNISH_COMPILE is 0"
