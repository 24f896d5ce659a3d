"""A cache of arrays in safetensors files, in a folder of the user alone.

Only files of this user that no other user can write to are read, and only if their content has the SHA-256 that was
written with it. Files are written aside and renamed. A cache that cannot be used is not an error: everything in it can
be computed again. BURNISH_CACHE=0 turns it off.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from burnish.util.paths import home

OFF = "BURNISH_CACHE"  # the environment variable that turns caches of data off with 0
CHUNK = 1 << 22  # numbers of an array that are read at once while its hash is computed


def private_folder(name: str) -> Path | None:
    """The folder $BURNISH_HOME/name, made if need be; None if it is not this user's alone, or the cache is off."""
    if os.environ.get(OFF) == "0":
        return None
    folder = home() / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            return None
        if found.st_mode & 0o077:
            folder.chmod(0o700)
        return folder
    except OSError:
        return None


class ArrayFile:
    """An open file of arrays that has been verified. Arrays are read when they are asked for."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._open = safe_open(file, framework="numpy")
        self.names = sorted(self._open.keys())

    def array(self, name: str) -> np.ndarray:
        """A whole array."""
        found: np.ndarray = self._open.get_tensor(name)
        return found

    def mapped(self, name: str) -> np.ndarray:
        """A whole array of at least one number, which stays on disk until parts of it are read."""
        with self._file.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            told = json.loads(file.read(length))[name]
        kind = {"I32": np.int32, "I64": np.int64}[told["dtype"]]
        offset = 8 + length + told["data_offsets"][0]
        return np.memmap(self._file, kind, "r", offset, tuple(told["shape"]))

    def whole(self) -> bool:
        """Whether the arrays have the hash that was written with them."""
        told = (self._open.metadata() or {}).get("sha256")
        return told == _sha256((name, self._pieces(name)) for name in self.names)

    def _pieces(self, name: str) -> Iterator[np.ndarray]:
        size = self._open.get_slice(name).get_shape()[0]
        for start in range(0, size, CHUNK):
            yield self._open.get_slice(name)[start : min(start + CHUNK, size)]


def recall(folder: str, name: str) -> ArrayFile | None:
    """The arrays that were kept under a name; None where there are none, or where anything about them is wrong."""
    where = private_folder(folder)
    if where is None:
        return None
    file = where / f"{name}.safetensors"
    try:
        found = file.lstat()
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            return None
        opened = ArrayFile(file)
        return opened if opened.whole() else None
    except (OSError, SafetensorError, ValueError, TypeError, IndexError):
        return None


def keep(folder: str, name: str, arrays: Mapping[str, np.ndarray]) -> bool:
    """Keep arrays of at least one dimension under a name; whether it worked."""
    where = private_folder(folder)
    if where is None:
        return False
    aside = None
    try:
        handle, path = tempfile.mkstemp(dir=where, prefix=f".{name}-", suffix=".partial")  # mode 0600
        os.close(handle)
        aside = Path(path)
        ordered: dict[str, Any] = {key: np.ascontiguousarray(arrays[key]) for key in sorted(arrays)}
        told = _sha256((key, iter([array])) for key, array in ordered.items())
        save_file(ordered, aside, metadata={"sha256": told})
        aside.chmod(0o600)
        aside.replace(where / f"{name}.safetensors")
        return True
    except (OSError, SafetensorError):
        if aside is not None:
            with contextlib.suppress(OSError):
                aside.unlink()
        return False


def _sha256(arrays: Iterator[tuple[str, Iterator[np.ndarray]]] | Any) -> str:
    """The hash of named arrays, each given in pieces."""
    total = hashlib.sha256()
    for name, pieces in arrays:
        total.update(f"\x1f{name}\x1f".encode())
        for piece in pieces:
            total.update(np.ascontiguousarray(piece).data)
    return total.hexdigest()
