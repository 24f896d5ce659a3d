"""Tokens of texts that came with a dataset: rendered and encoded once, then taken from memory or from disk.

An entry is found by the hash of what was encoded (a prompt's messages, a reply, a conversation), so a row that changes
is encoded again. The files belong to one dataset and one tokenizer with its template (`name`). They are read in place:
of a file there are about 60 bytes an entry in memory, and none of its tokens. An entry is checked whenever it is read:
one that was altered since the file was opened is encoded again.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from burnish.util import private_cache

FOLDER = "texts"
WORTH_SECONDS = 2.0  # what took less to encode is encoded again by the next run
IN_MEMORY = 1 << 24  # tokens that are kept in memory before they are written (128 MiB)
ON_DISK = 1 << 30  # tokens of one dataset that are kept on disk (4 GiB); later ones are encoded whenever they are drawn
ALL_FILES = 16 << 30  # bytes of the files of all datasets; the oldest are removed


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive tokens of a conversation and what each counts in training; 0: it is not trained on."""

    tokens: Tensor
    weight: float


Samples = list[list[Piece]]


def text_key(*what: object) -> bytes | None:
    """The hash of values that JSON can hold; None for others, which are not cached."""
    try:
        told = json.dumps(what, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError):
        return None
    return hashlib.blake2b(told.encode(), digest_size=16).digest()


class TextCache:
    """Encoded texts by their key. name: of its files; None: it is in memory alone."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self.encoded = 0  # texts that were encoded because they were not in the cache
        self._new: dict[bytes, Samples] = {}
        self._new_tokens, self._seconds, self._full = 0, 0.0, False
        self._files: list[_File] = []
        self._writer = threading.Lock()
        while name is not None and (file := _File.recall(f"{name}-{len(self._files)}")):
            self._files.append(file)

    def samples(self, key: bytes | None, encode: Callable[[], Samples]) -> Samples:
        """The entry of a key; by `encode` where there is none."""
        if key is None:
            return encode()
        entry = self._new.get(key)
        if entry is not None:
            return entry
        for file in self._files:
            stored = file.find(key)
            if stored is not None:
                return stored
        start = time.perf_counter()
        made = encode()
        self._add(key, made, time.perf_counter() - start)
        return made

    def _add(self, key: bytes, made: Samples, seconds: float) -> None:
        with self._writer:
            self.encoded += 1
            self._keep(key, made)
            self._seconds += seconds

    def tokens(self, key: bytes | None, encode: Callable[[], Tensor]) -> Tensor:
        """The entry of a key that is one run of tokens."""
        return self.samples(key, lambda: [[Piece(encode(), 0.0)]])[0][0].tokens

    def has(self, key: bytes) -> bool:
        """Whether there is an entry of a key."""
        return key in self._new or any(file.place(key) is not None for file in self._files)

    @property
    def full(self) -> bool:
        """Whether it keeps nothing more."""
        return self._full

    def put(self, key: bytes, tokens: Tensor, seconds: float) -> None:
        """An entry that is one run of tokens, encoded with others in one call; seconds: its share of that call."""
        self._add(key, [[Piece(tokens, 0.0)]], seconds)

    def save(self, worth: float = WORTH_SECONDS) -> None:
        """Write what is new, if encoding it took more than `worth` seconds."""
        with self._writer:
            if self._seconds > worth:
                self._write()

    def _keep(self, key: bytes, made: Samples) -> None:
        size = sum(len(piece.tokens) for pieces in made for piece in pieces)
        if not self._full and self._new_tokens + size > IN_MEMORY:
            self._write()
        if not self._full:
            self._new[key] = made
            self._new_tokens += size

    def _write(self) -> None:
        """Move what is new to a file; where that is impossible, nothing more is kept."""
        if not self._new:
            return
        self._full = True
        if self.name is None or sum(file.tokens for file in self._files) + self._new_tokens > ON_DISK:
            return
        stored = f"{self.name}-{len(self._files)}"
        if not private_cache.keep(FOLDER, stored, _arrays(self._new)):
            return
        file = _File.recall(stored)
        if file is not None:
            self._files.append(file)
            self._new, self._new_tokens, self._seconds, self._full = {}, 0, 0.0, False
            _remove_oldest(stored)


class _File:
    """A file of entries, sorted by key.

    keys     [N, 2] uint64        first    [N + 1] int64: the pieces of each entry
    starts   [P + 1] int64: the tokens of each piece;  weights  [P] float64;  samples  [P] int32: its sample's number
    sums     [N] int64: the checksum of each entry's tokens, which stay on disk and are checked whenever they are read
    """

    def __init__(self, file: private_cache.ArrayFile) -> None:
        names = ("first", "starts", "weights", "samples", "sums")
        self.first, self.starts, self.weights, self.numbers, self.sums = (file.array(name) for name in names)
        keys = file.array("keys")
        self.high, self.low = np.ascontiguousarray(keys[:, 0]), np.ascontiguousarray(keys[:, 1])
        self.tokens = int(self.starts[-1])
        self._file = file

    @classmethod
    def recall(cls, name: str) -> _File | None:
        """The file of this name; None where there is none that can be used."""
        arrays = private_cache.recall(FOLDER, name, on_disk=("tokens",))
        try:
            return None if arrays is None else cls(arrays)
        except KeyError:  # of a version without checksums
            return None

    def find(self, key: bytes) -> Samples | None:
        """The entry of a key; None where there is none, or where the file has changed since it was opened."""
        place = self.place(key)
        if place is None:
            return None
        first, last = int(self.first[place]), int(self.first[place + 1])
        try:
            flat = self._file.part("tokens", int(self.starts[first]), int(self.starts[last]))
        except (OSError, ValueError):
            return None
        return self._entry(first, last, flat) if _checksum(flat) == self.sums[place] else None

    def place(self, key: bytes) -> int | None:
        """Where an entry is; None where there is none."""
        high, low = np.frombuffer(key, "<u8")
        place = int(np.searchsorted(self.high, high))
        while place < len(self.high) and self.high[place] == high:
            if self.low[place] == low:
                return place
            place += 1
        return None

    def _entry(self, first: int, last: int, tokens: np.ndarray) -> Samples:
        starts = self.starts[first : last + 1].tolist()
        flat = torch.from_numpy(tokens.astype(np.int64))
        entry: Samples = []
        for i in range(last - first):
            if self.numbers[first + i] == len(entry):
                entry.append([])
            own = flat[starts[i] - starts[0] : starts[i + 1] - starts[0]]
            entry[-1].append(Piece(own, float(self.weights[first + i])))
        return entry


def _arrays(entries: dict[bytes, Samples]) -> dict[str, np.ndarray]:
    keys = np.frombuffer(b"".join(entries), "<u8").reshape(-1, 2)
    order = np.lexsort((keys[:, 1], keys[:, 0]))
    listed = list(entries.values())
    pieces = [[(k, p) for k, sample in enumerate(listed[i]) for p in sample] for i in order]
    flat = [piece for own in pieces for piece in own]
    lengths = [len(piece.tokens) for _, piece in flat]
    tokens = torch.cat([piece.tokens for _, piece in flat]) if flat else torch.zeros(0, dtype=torch.long)
    numbers = tokens.numpy().astype(np.int32)
    first, starts = np.cumsum([0, *map(len, pieces)], dtype=np.int64), np.cumsum([0, *lengths], dtype=np.int64)
    ends = starts[first]
    return {
        "keys": keys[order],
        "first": first,
        "starts": starts,
        "sums": np.array([_checksum(numbers[a:b]) for a, b in itertools.pairwise(ends)], np.int64),
        "weights": np.array([piece.weight for _, piece in flat], np.float64),
        "samples": np.array([k for k, _ in flat], np.int32),
        "tokens": numbers,
    }


def _checksum(tokens: np.ndarray) -> int:
    return int.from_bytes(hashlib.blake2b(tokens.tobytes(), digest_size=8).digest(), "little", signed=True)


def _remove_oldest(newest: str) -> None:
    """Keep the files of all datasets below ALL_FILES bytes."""
    folder = private_cache.private_folder(FOLDER)
    files = sorted(folder.glob("*.safetensors"), key=lambda file: -file.stat().st_mtime) if folder else []
    total = 0
    for file in files:
        total += file.stat().st_size
        if total > ALL_FILES and not file.name.startswith(newest):
            file.unlink(missing_ok=True)
