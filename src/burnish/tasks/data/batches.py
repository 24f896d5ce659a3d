"""A file of Arrow batches with a checksum for each: what is read from it is what was written, or there is an error.

batches, one after the other, each an Arrow stream of its own (schema, dictionaries, rows)
ends    [B] int64: where each batch ends       rows  [B] int64: its rows       sums  [B] int64: its checksum
source  32 bytes: the hash of the file that the rows are from
number of batches (8 bytes), and the hash of all from `ends` on (32 bytes)
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from burnish.util.private_cache import open_private, read_part

_TAIL = 8 + 32  # bytes


def write_batches(file: Path, batches: Iterable[Any], source: str) -> None:
    """Write a file of batches, readable by this user alone. source: the hash of what they are from, in hex."""
    import pyarrow

    ends: list[int] = []
    rows: list[int] = []
    sums: list[int] = []
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as out:
        for batch in batches:
            sink = pyarrow.BufferOutputStream()
            with pyarrow.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            content = sink.getvalue()
            out.write(content)
            ends.append((ends[-1] if ends else 0) + content.size)
            rows.append(batch.num_rows)
            sums.append(_checksum(content))
        index = np.array([ends, rows, sums], "<i8").tobytes() + bytes.fromhex(source) + len(ends).to_bytes(8, "little")
        out.write(index + hashlib.sha256(index).digest())


class BatchFile:
    """A file of batches that stays open: whatever becomes of its path, this file is read.

    Raises ValueError where the file is not one, is another user's, or its rows are not from `source`.
    """

    def __init__(self, file: Path, source: str) -> None:
        self._file = file
        self._number = open_private(file)
        weakref.finalize(self, os.close, self._number)
        size = os.fstat(self._number).st_size
        tail = read_part(self._number, max(0, size - _TAIL), _TAIL)
        count = int.from_bytes(tail[:8], "little")
        length = 24 * count + 32
        if length + _TAIL > size:
            raise ValueError(f"{file} was cut off")
        index = read_part(self._number, size - _TAIL - length, length)
        if hashlib.sha256(index + tail[:8]).digest() != tail[8:] or index[-32:].hex() != source:
            raise ValueError(f"{file} has changed since it was written, or holds other rows")
        self._ends, rows, self._sums = np.frombuffer(index, "<i8", 3 * count).reshape(3, count)
        self.rows: list[int] = rows.tolist()

    def __call__(self, number: int) -> object:
        """A batch; ValueError where it is no longer what was written, and the file is removed."""
        import pyarrow

        begin = int(self._ends[number - 1]) if number else 0
        try:
            content = read_part(self._number, begin, int(self._ends[number]) - begin)
            if _checksum(content) != self._sums[number]:
                raise ValueError("its checksum is wrong")
        except (OSError, ValueError):
            with contextlib.suppress(OSError):
                self._file.unlink()
            raise ValueError(
                f"{self._file}, a copy of rows in the cache, was altered while it was read and has been removed; use "
                "--resume, or start again"
            ) from None
        return pyarrow.ipc.open_stream(pyarrow.py_buffer(content)).read_next_batch()


def _checksum(content: Any) -> int:
    return int.from_bytes(hashlib.sha256(content).digest()[:8], "little", signed=True)
