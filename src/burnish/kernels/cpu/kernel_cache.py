"""The library of our CPU kernels on the disk: built by the machine's C compiler, kept in a private cache, checked
before it is loaded.

BURNISH_HOME/kernels/            mode 0700, ours
  kernels-KEY.json               what was built for these sources, this compiler, these flags and this processor, with
  its sha256
  kernels-HASH.so                the library, named after its sha256

A library is never loaded before its sha256 was compared with the record: the loader maps a file without looking at it,
so a truncated library kills the process. What is missing, damaged, owned by another user or writable by others is built
again. A cache directory that another user owns or can write to is not used at all: the library is then built for this
process alone.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from burnish.util.paths import home

SOURCES = Path(__file__).parent / "csrc"
FLAGS = ("-O3", "-march=native", "-mprefer-vector-width=512", "-fopenmp", "-fPIC")
LINKED = ("-shared", "-Wl,-Bsymbolic")  # a name that the C library has, too, is ours among ourselves
PATIENCE = 120  # seconds that the compiler is given


class Refused(Exception):
    """Why there are no kernels."""


@dataclass(frozen=True)
class Recipe:
    """All that decides which library comes out of a build.

    compiler  its path;  version: the first line of `--version`
    openmp    the path of torch's own OpenMP, which the library is linked with, so that its threads are ours
    features  of the processor: a home directory may be seen from several machines
    sources   their sha256
    """

    compiler: str
    version: str
    flags: str
    openmp: str
    features: str
    sources: str

    @property
    def key(self) -> str:
        """The name of its record in the cache."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Library:
    """A built library. note: why it is not in the cache, or nothing."""

    path: Path
    sha256: str
    recipe: Recipe
    note: str = ""


def recipe() -> Recipe:
    """What this machine would build; Refused where it cannot."""
    if os.environ.get("BURNISH_COMPILE") == "0":
        raise Refused("$BURNISH_COMPILE is 0")
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise Refused("there is no C compiler (cc or gcc)")
    openmp = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    if not openmp:
        raise Refused("this torch brings no GNU OpenMP")
    sources = b"|".join(file.read_bytes() for file in sorted(SOURCES.glob("*.[ch]")))
    return Recipe(
        compiler,
        (_run([compiler, "--version"], Path.cwd(), compiler).splitlines() or [""])[0],
        " ".join((*FLAGS, *LINKED)),
        str(openmp[0]),
        _features(),
        hashlib.sha256(sources).hexdigest(),
    )


@contextlib.contextmanager
def library() -> Iterator[Library]:
    """The library for this machine, from the cache or from the compiler; its file is there at least inside of this
    context.
    """
    wanted = recipe()
    folder, why_not = _private_folder()
    found = None
    if folder is not None:
        try:
            found = _cached(folder, wanted) or _keep(folder, wanted)
        except OSError as error:
            why_not = f"{folder} cannot be written to ({error.strerror or error})"
    if found is not None:
        yield found
        return
    with tempfile.TemporaryDirectory(prefix="burnish-") as alone:  # which mkdtemp makes for its owner alone
        made = _build(wanted, Path(alone))
        yield Library(made, _hash(made.read_bytes()), wanted, why_not)


def _private_folder() -> tuple[Path | None, str]:
    """The cache directory, if no other user can write to it; or None, and why."""
    folder = home() / "kernels"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode):
            return None, f"{folder} is not a directory"
        if found.st_uid != os.geteuid():
            return None, f"{folder} belongs to another user"
        if found.st_mode & 0o022:
            return None, f"{folder} can be written to by others; remove it"
        if found.st_mode & 0o055:
            folder.chmod(0o700)
        with tempfile.TemporaryFile(dir=folder):
            return folder, ""
    except OSError as error:
        return None, f"{folder} cannot be written to ({error.strerror or error})"


def _cached(folder: Path, wanted: Recipe) -> Library | None:
    """The library that the cache holds for this recipe; None where there is none, or where anything
    about it is wrong.
    """
    try:
        record = json.loads(_own_bytes(folder / f"kernels-{wanted.key}.json"))
        if record["recipe"] != asdict(wanted):
            return None
        path = folder / f"kernels-{record['sha256'][:16]}.so"
        return Library(path, record["sha256"], wanted) if _hash(_own_bytes(path)) == record["sha256"] else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _own_bytes(file: Path) -> bytes:
    """A file's content, if it is a plain file that is ours and that no other user can write to; else a ValueError."""
    opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)  # a FIFO must not block
    with os.fdopen(opened, "rb") as content:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise ValueError(f"{file} is not a file of this user alone")
        return content.read()


def _keep(folder: Path, wanted: Recipe) -> Library:
    """Build the library into the cache: the library first, then the record that names it, each written aside and
    renamed.

    Processes that begin together do not disturb each other: libraries with different content have different names.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".build-") as aside:
        made = _build(wanted, Path(aside))
        made.chmod(0o700)  # whatever the umask allows
        sha256 = _hash(made.read_bytes())
        path = _renamed(made, folder / f"kernels-{sha256[:16]}.so")
        record = Path(aside) / "record.json"
        record.touch(mode=0o600)
        record.write_text(json.dumps({"sha256": sha256, "recipe": asdict(wanted)}, indent=1) + "\n")
        _renamed(record, folder / f"kernels-{wanted.key}.json")
    return Library(path, sha256, wanted)


def _renamed(file: Path, to: Path) -> Path:
    if to.is_dir() and not to.is_symlink():
        shutil.rmtree(to)
    return file.replace(to)


def _build(wanted: Recipe, folder: Path) -> Path:
    """Compile and link in a folder of our own."""
    sources = [str(file) for file in sorted(SOURCES.glob("*.c"))]
    objects = [f"{Path(source).stem}.o" for source in sources]
    made = folder / "kernels.so"
    doing = f"{wanted.compiler} did not compile the kernels"
    _run([wanted.compiler, *FLAGS, "-c", *sources], folder, wanted.compiler, doing)
    _run([wanted.compiler, *LINKED, *objects, wanted.openmp, "-lm", "-o", str(made)], folder, wanted.compiler, doing)
    return made


def _run(command: list[str], folder: Path, compiler: str, failed: str = "") -> str:
    """What a command of the compiler prints; Refused where it fails."""
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=PATIENCE)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(f"{compiler} did not work: {error}") from None
    if done.returncode and failed:
        lines = done.stderr.strip().splitlines()
        first = lines[0] if lines else f"exit status {done.returncode}"
        raise Refused(f"{failed}: {next((line for line in lines if 'error' in line), first)}")
    return done.stdout


def _features() -> str:
    """Of the processor: the instructions that it has."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    found = next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())
    return found.partition(":")[2].strip() or found


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
