"""Rows that are lines of a file: found by their offsets, parsed when they are asked for.

A compressed file is unpacked into a temporary file first, which stays in memory while it is small.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np

from burnish.tasks.data.parse import parse_json

CHUNK = 1 << 24  # bytes read at once while looking for the ends of lines
IN_MEMORY = 1 << 26  # bytes of an unpacked file that are kept in memory; a larger one goes to a temporary file


class Lines:
    """The lines of a file that are not blank.

    parse: (line, where) -> row
    unit:  what messages call a line; of rows that were copied here from elsewhere, "row"
    """

    def __init__(self, file: IO[bytes], name: str, parse: Callable[[bytes, str], Any], unit: str = "line") -> None:
        self._file, self._name, self._parse, self._unit = file, name, parse, unit
        self._one_reader = threading.Lock()
        self._starts, self._ends, self._numbers = _line_ends(file)

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self._starts):
            raise IndexError(index)
        start, end = int(self._starts[index]), int(self._ends[index])
        with self._one_reader:  # a file has one position, and the sampling thread reads as well
            self._file.seek(start)
            line = self._file.read(end - start)
        return self._parse(line, self.where(index))

    def __iter__(self) -> Iterator[Any]:
        index, count = 0, len(self)
        while index < count:  # several lines at once
            start = int(self._starts[index])
            after = max(index + 1, int(np.searchsorted(self._ends, start + CHUNK // 16, side="right")))
            with self._one_reader:
                self._file.seek(start)
                block = self._file.read(int(self._ends[after - 1]) - start)
            spans = zip(
                (self._starts[index:after] - start).tolist(), (self._ends[index:after] - start).tolist(), strict=True
            )
            for number, (first, end) in enumerate(spans, index):
                yield self._parse(block[first:end], self.where(number))
            index = after

    def where(self, index: int) -> str:
        return f"{self._name}, {self._unit} {int(self._numbers[index])}"


def _line_ends(file: IO[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Start, end and number (from 1) of each line that is not blank."""
    breaks: list[np.ndarray] = []
    first_bytes: list[np.ndarray] = []  # of each line
    file.seek(0)
    size, at_start = 0, True
    while chunk := file.read(CHUNK):
        content = np.frombuffer(chunk, np.uint8)
        found = np.flatnonzero(content == 0x0A)
        begins = np.concatenate([np.zeros(1 if at_start else 0, np.int64), found + 1])
        first_bytes.append(content[begins[begins < len(chunk)]])
        breaks.append(found + size)
        size, at_start = size + len(chunk), chunk.endswith(b"\n")
    ends = np.concatenate([*breaks, np.array([size])]).astype(np.int64)
    starts = np.concatenate([np.array([0]), ends[:-1] + 1]).astype(np.int64)
    numbers = np.arange(1, len(starts) + 1)
    kept = ends > starts
    spaced = np.zeros(len(starts), bool)
    opening = np.concatenate([*first_bytes, np.zeros(0, np.uint8)])
    spaced[: len(opening)] = np.isin(opening, np.frombuffer(b" \t\r\v\f", np.uint8))
    for i in np.flatnonzero(kept & spaced):  # a line that begins with a space may be blank
        file.seek(int(starts[i]))
        kept[i] = bool(file.read(int(ends[i] - starts[i])).strip())
    return starts[kept], ends[kept], numbers[kept]


def json_line(line: bytes, where: str) -> object:
    """The row of a line of JSON: an object, or a bare list of messages."""
    line = line.removeprefix(b"\xef\xbb\xbf")
    listed = line.lstrip().startswith(b"[")
    row = parse_json(line, where, "a file that is one list is .json, not .jsonl" if listed else "fix that line")
    if isinstance(row, list) and not (
        row and all(isinstance(one, dict) and {"role", "from"} & one.keys() for one in row)
    ):
        raise ValueError(
            f"{where}: is a list, not an object with named columns; write one object a line, or call the file .json"
        )
    return row


def text_line(line: bytes, where: str) -> object:
    try:
        return {"text": line.decode("utf-8").rstrip("\r")}
    except UnicodeDecodeError as error:
        raise ValueError(f"{where}: cannot be read as UTF-8 text ({error}); write it again") from None


def spooled(rows: Iterable[object], name: str) -> Lines:
    """Rows of a stream, kept as lines of JSON in a temporary file: for kinds of files without offsets (CSV)."""
    file = _temporary()
    for row in rows:
        file.write(json.dumps(row, ensure_ascii=False, default=_plain).encode() + b"\n")
    return Lines(file, name, json_line, "row")


def _plain(value: object) -> object:
    """What JSON can hold of a value: numbers and lists of numpy and torch, any other as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


OPENERS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": lambda path: _zstandard(path),
}


def open_bytes(path: Path) -> IO[bytes]:
    """A file that can be read at any offset, unpacked if its name says that it is compressed."""
    opener = OPENERS.get(path.suffix.lower())
    if opener is None:
        return io.FileIO(os.open(path, os.O_RDONLY))
    file = _temporary()
    with opener(path) as packed:
        while chunk := packed.read(CHUNK):
            file.write(chunk)
    return file


def open_text(path: Path) -> IO[str]:
    """A text file as a stream, unpacked on the way."""
    opener = OPENERS.get(path.suffix.lower())
    return io.TextIOWrapper(path.open("rb") if opener is None else opener(path), encoding="utf-8-sig", newline="")


def _zstandard(path: Path) -> object:
    try:
        import pyarrow
    except ImportError:
        raise ValueError(f"reading {path} needs pyarrow; install it with: pip install 'burnish[data]'") from None
    return pyarrow.CompressedInputStream(str(path), "zstd")


def _temporary() -> IO[bytes]:
    return tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)
