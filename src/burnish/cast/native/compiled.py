"""Our kernels for a CPU (kernels/*.c): built once by the machine's own C compiler, then kept beside the models.

They do in one call what takes torch dozens of small operators, and every number they make is the same whatever is computed beside
it. A machine without a C compiler, or whose torch brings another OpenMP than GNU's (two in one process would fight for the cores),
goes without: torch then does the same work. `$BURNISH_COMPILE=0` says so too; `why_not` says why.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

from burnish.cast.home import home

SOURCES = Path(__file__).parent / "kernels"
FLAGS = ("-O3", "-march=native", "-mprefer-vector-width=512", "-fopenmp", "-fPIC")
LINKED = ("-shared", "-Wl,-Bsymbolic")  # a name that the C library has, too, is ours among ourselves
PATIENCE = 120  # seconds that the compiler is given


class Shape(ctypes.Structure):
    """A model's sizes (kernels/base.h, as are the others)."""

    _fields_ = [
        *((name, ctypes.c_long) for name in ("hidden", "heads", "kv_heads", "width", "inner")),
        ("eps", ctypes.c_float),
        ("scale", ctypes.c_float),
    ]


class View(ctypes.Structure):
    """[tokens, heads, width] somewhere in memory."""

    _fields_ = [("at", ctypes.c_void_p), ("token", ctypes.c_long), ("head", ctypes.c_long)]


class Pack(ctypes.Structure):
    """Rows laid end to end, as trees."""

    _fields_ = [
        ("tokens", ctypes.c_long),
        ("trees", ctypes.c_long),
        ("begins", ctypes.c_void_p),
        ("stretches", ctypes.c_void_p),
    ]


class Below(ctypes.Structure):
    """Matrices, one below the other (kernels/product.c)."""

    _fields_ = [("at", ctypes.c_void_p * 3), ("rows", ctypes.c_long * 3)]


class LayerAt(ctypes.Structure):
    """Where the weights of a layer lie, and its keys and values."""

    _fields_ = [
        (name, ctypes.c_void_p)
        for name in (
            *("norm", "read", "out", "inner_norm", "open", "down", "read_bias", "q_norm", "k_norm"),
            *("own_k", "own_v", "roots_k", "roots_v"),
        )
    ]


class KeptAt(ctypes.Structure):
    """Where what a layer's backward needs goes."""

    _fields_ = [(name, ctypes.c_void_p) for name in ("x", "found", "seen", "middle", "both")]


class ModelAt(ctypes.Structure):
    """Where layers and what is around them lie."""

    _fields_ = [
        ("layers", ctypes.c_void_p),
        *((name, ctypes.c_long) for name in ("number", "capacity", "vocabulary")),
        *((name, ctypes.c_void_p) for name in ("embedding", "norm", "head", "cos", "sin")),
    ]


# as cast/engine/rows.py names them
OF_ROWS = (
    *("last", "count", "limit", "key", "root_length", "base", "slot"),
    *("factor", "greedy", "done", "ended", "tokens", "logp", "stops"),
)


class RowsAt(ctypes.Structure):
    """Where the rows of an engine lie."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in OF_ROWS),
        *((name, ctypes.c_long) for name in ("room", "endings")),
        *((name, ctypes.c_void_p) for name in ("at", "leaders", "number", "mark", "family", "lengths")),
        *((name, ctypes.c_long) for name in ("families", "longest")),
    ]


class Refused(Exception):
    """Why there are no kernels."""


@cache
def _found() -> ctypes.CDLL | str:
    """The kernels, or the reason why there are none."""
    try:
        return _load(_built())
    except Refused as reason:
        return str(reason)


def kernels() -> ctypes.CDLL | None:
    """The kernels, built if they have to be; None where there can be none."""
    found = _found()
    return None if isinstance(found, str) else found


def there() -> ctypes.CDLL:
    """The kernels, where it is known that there are some."""
    found = kernels()
    assert found is not None
    return found


def why_not() -> str | None:
    """Why there are no kernels."""
    found = _found()
    return found if isinstance(found, str) else None


def _load(path: Path) -> ctypes.CDLL:
    try:
        found = ctypes.CDLL(str(path))
    except OSError as error:
        raise Refused(f"{path} cannot be loaded: {error}") from None
    number, floats, flat = ctypes.c_long, ctypes.c_void_p, ctypes.c_float
    for name, kinds in {
        "lay_out": [floats] * 2 + [number] * 4,
        "times": [floats] * 3 + [number] * 3 + [floats],
        "multiply": [floats, number, floats, floats] + [number] * 3,
        "norm": [floats] * 4 + [number] * 2 + [flat],
        "norm_back": [floats] * 7 + [number] * 2 + [flat],
        "gate_back": [floats] * 5 + [number] * 2,
        "layer": [floats] * 14,
        "head_norms_back": [floats] * 6 + [number],
        "attention_back": [floats] * 8,
        "leading": [floats, number],
        "next_logits": [floats] * 3 + [number] + [floats] * 2 + [number, floats],
        "say": [floats, number, number, floats, number, floats],
        "part": [floats, number, floats, number, floats, number],
        "choose": [floats, number, number] + [floats] * 6,
        "from_logits": [floats, number, number, floats, floats, number] + [floats] * 3,
        "d_logits": [floats, number, number, floats, flat] + [floats] * 5,
        "copy_slots": [floats] * 2 + [number] * 3 + [floats] * 3,
        "attend": [floats] * 4,
        "attend_back": [floats] * 4,
    }.items():
        function = getattr(found, name)
        function.argtypes, function.restype = kinds, number if name in ("leading", "part") else None
    return found


def _built() -> Path:
    """The library, from the cache or from the compiler."""
    if os.environ.get("BURNISH_COMPILE") == "0":
        raise Refused("$BURNISH_COMPILE is 0")
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise Refused("there is no C compiler (cc or gcc)")
    threads = sorted((Path(torch.__file__).parent / "lib").glob("libgomp*.so*"))
    if not threads:
        raise Refused("this torch brings no GNU OpenMP")
    sources = sorted(SOURCES.glob("*.[ch]"))
    facts = [
        *(file.read_bytes() for file in sources),
        " ".join((compiler, *FLAGS, *LINKED, str(threads[0]), _processor())).encode(),
    ]
    path = home() / f"kernels-{hashlib.sha256(b'|'.join(facts)).hexdigest()[:16]}.so"
    if not path.exists():
        path = _place() / path.name
        _build(compiler, threads[0], path)
    return path


def _place() -> Path:
    """Where it is built and kept: beside what burnish fetches, or, where that cannot be written, for this process alone."""
    try:
        home().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=home()):
            return home()
    except OSError:
        return Path(tempfile.mkdtemp(prefix="burnish-"))


def _processor() -> str:
    """What the library is made for: a home directory may be seen from several machines."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())


def _build(compiler: str, threads: Path, path: Path) -> None:
    """Compile; the library appears at once or not at all, so that processes that begin together do not disturb each other."""
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".kernels-") as folder:
        sources = [str(file) for file in sorted(SOURCES.glob("*.c"))]
        made = Path(folder) / path.name
        for command in (
            [compiler, *FLAGS, "-c", *sources],
            # linked with torch's own OpenMP, by name, so that its threads are ours
            [
                compiler,
                *LINKED,
                *(f"{Path(source).stem}.o" for source in sources),
                str(threads),
                "-lm",
                "-o",
                str(made),
            ],
        ):
            try:
                done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise Refused(f"{compiler} did not work: {error}") from None
            if done.returncode:
                lines = done.stderr.strip().splitlines()
                said = next(
                    (line for line in lines if "error" in line), lines[0] if lines else f"exit status {done.returncode}"
                )
                raise Refused(f"{compiler} did not compile the kernels: {said}")
        os.replace(made, path)
