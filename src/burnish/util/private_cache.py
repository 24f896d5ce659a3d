"""A cache of arrays in safetensors files, in a folder of the user alone.

Only files of this user that no other user can write to are read, and only if their content has the SHA-256 that was
written with it. What is used is what was verified, not what has the same path a moment later. Files are written aside
and renamed. A cache that cannot be used is not an error: everything in it can
be computed again. BURNISH_CACHE=0 turns it off.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import stat
import tempfile
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from burnish.util.paths import home
from burnish.util.untrusted import parse_json

OFF = "BURNISH_CACHE"  # the environment variable that turns caches of data off with 0
HEAD = 1 << 20  # bytes of the head of a file: names, shapes and the hash
KINDS = {"I32": "<i4", "I64": "<i8", "U64": "<u8", "U8": "u1", "F64": "<f8", "BOOL": "?"}  # of safetensors
CHUNK = 1 << 22  # numbers of an array that are read at once while its hash is computed


def private_folder(name: str) -> Path | None:
    """The folder $BURNISH_HOME/name, made if need be; None if it is not this user's alone, or the cache is off."""
    if os.environ.get(OFF) == "0":
        return None
    folder = home() / name
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
            return None
        if status.st_mode & 0o077:
            folder.chmod(0o700)
        return folder
    except OSError:
        return None


class ArrayFile:
    """Arrays of a file that has been verified, and stays open: whatever becomes of its path, this file is read.

    The arrays are in memory, as they were verified, but for those named in `on_disk`: of these, `part` reads some
    numbers from the file that was verified. Nothing is mapped: a file that is cut off meanwhile would end the process.
    """

    def __init__(self, file: Path, on_disk: Collection[str] = ()) -> None:
        self._number = open_private(file)
        weakref.finalize(self, os.close, self._number)
        size = os.fstat(self._number).st_size
        head = int.from_bytes(os.pread(self._number, 8, 0), "little")
        if head > HEAD:
            raise ValueError(f"{file} has no head")
        told = parse_json(os.pread(self._number, head, 8))
        if not isinstance(told, dict):
            raise ValueError(f"{file} has no head")
        self._places = {name: _Place.of(one, 8 + head) for name, one in told.items() if name != "__metadata__"}
        self.names = sorted(self._places)
        if any(place.offset + place.size > size for place in self._places.values()):
            raise ValueError(f"{file} was cut off")
        self._arrays = {name: self.part(name) for name in self.names if name not in on_disk}
        if told["__metadata__"]["sha256"] != _sha256((name, self._pieces(name)) for name in self.names):
            raise ValueError(f"{file} has changed since it was written")

    def array(self, name: str) -> np.ndarray:
        """A whole array that is in memory."""
        return self._arrays[name]

    def part(self, name: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Rows `start` to `stop` of an array, as they are on disk now; ValueError where they are there no longer."""
        place = self._places[name]
        stop = place.shape[0] if stop is None else stop
        wide = place.kind.itemsize * math.prod(place.shape[1:])
        content = read_part(self._number, place.offset + start * wide, (stop - start) * wide)
        return np.frombuffer(content, place.kind).reshape(stop - start, *place.shape[1:])

    def _pieces(self, name: str) -> Iterator[np.ndarray]:
        if name in self._arrays:
            yield self._arrays[name]
            return
        size = self._places[name].shape[0]
        for start in range(0, size, CHUNK):
            yield self.part(name, start, min(start + CHUNK, size))


@dataclass(frozen=True)
class _Place:
    """Where an array is in a safetensors file."""

    kind: np.dtype
    shape: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        """In bytes."""
        return self.kind.itemsize * math.prod(self.shape)

    @classmethod
    def of(cls, told: Mapping[str, Any], begin: int) -> _Place:
        return cls(np.dtype(KINDS[told["dtype"]]), tuple(map(int, told["shape"])), begin + int(told["data_offsets"][0]))


def open_private(file: Path) -> int:
    """The descriptor of a file that only this user can write to; ValueError for any other."""
    number = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    status = os.fstat(number)
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        os.close(number)
        raise ValueError(f"{file} is not a file of this user alone")
    return number


def read_part(number: int, offset: int, size: int) -> bytearray:
    """Bytes of an open file; ValueError where it ends before. One call of the system reads 2 GiB at most."""
    content = bytearray(size)
    view, done = memoryview(content), 0
    while done < size:
        got = os.preadv(number, [view[done:]], offset + done)
        if not got:
            raise ValueError("the file was cut off")
        done += got
    return content


def recall(folder: str, name: str, on_disk: Collection[str] = ()) -> ArrayFile | None:
    """The arrays that were kept under a name; None where there are none, or where anything about them is wrong.

    on_disk: those that are not taken into memory
    """
    where = private_folder(folder)
    if where is None:
        return None
    try:
        return ArrayFile(where / f"{name}.safetensors", on_disk)
    except (OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, MemoryError):
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
        ordered = {key: np.ascontiguousarray(arrays[key]) for key in sorted(arrays)}
        told = _sha256((key, [array]) for key, array in ordered.items())
        save_file(ordered, aside, metadata={"sha256": told})
        aside.chmod(0o600)
        aside.replace(where / f"{name}.safetensors")
        return True
    except (OSError, SafetensorError):
        if aside is not None:
            with contextlib.suppress(OSError):
                aside.unlink()
        return False


def _sha256(arrays: Iterable[tuple[str, Iterable[np.ndarray]]]) -> str:
    """The hash of named arrays, each given in pieces."""
    total = hashlib.sha256()
    for name, pieces in arrays:
        total.update(f"\x1f{name}\x1f".encode())
        for piece in pieces:
            total.update(np.ascontiguousarray(piece).data)
    return total.hexdigest()
