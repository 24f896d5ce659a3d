"""The cache of what is slow to find out about a dataset, by the content of its files (util/private_cache.py).

Size and time of the last change do not tell files apart: `cp -p` and unpacked archives keep both. So a name in the
cache is made of the hash of each file. The hash of a large file is remembered for its state, with the time at which the
system changed it (ctime), which no program can set.
"""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path

import numpy as np

from burnish.util import private_cache

FOLDER = "data"
WORTH_SECONDS = 2.0  # what took less is found out again
WORTH_HASHING = 0.05  # seconds; a hash that took less is computed again
SETTLED = 2.0  # seconds since the last change: two changes may have the same time within a tick of the system's clock
State = tuple[int, ...]


def state(path: Path) -> State:
    """What changes with a file: device, inode, time of the last change of either kind, size."""
    found = path.stat()
    return found.st_dev, found.st_ino, found.st_ctime_ns, found.st_mtime_ns, found.st_size


def content(path: Path) -> str:
    """The hash of a file's content. A file of 500 MB takes 0.7 s, and 1 ms where its hash is remembered."""
    before, now = state(path), time.time()
    name = "hash-" + hashlib.sha256(repr(before).encode()).hexdigest()[:32]
    if found := recall(name):
        return bytes(found["sha256"]).hex()
    start = time.perf_counter()
    with path.open("rb") as file:
        hashed = hashlib.file_digest(file, "sha256")
    settled = abs(now - before[2] / 1e9) > SETTLED and state(path) == before
    if settled and time.perf_counter() - start > WORTH_HASHING:
        keep(name, {"sha256": np.frombuffer(hashed.digest(), np.uint8)})
    return hashed.hexdigest()


def fingerprint(*what: object) -> str:
    """A name for these values; a path stands for the content of the file."""
    parts = [content(one) if isinstance(one, Path) else str(one) for one in what]
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def on() -> bool:
    """Whether anything can be kept; if not, no file needs a hash."""
    return os.environ.get(private_cache.OFF) != "0"


def recall(name: str) -> dict[str, np.ndarray] | None:
    """The arrays that were kept under a name; None where there are none, or where they cannot be read."""
    file = private_cache.recall(FOLDER, name)
    return None if file is None else {one: file.array(one) for one in file.names}


def keep(name: str, arrays: dict[str, np.ndarray]) -> None:
    """Keep arrays under a name. A cache that cannot be written is not used."""
    private_cache.keep(FOLDER, name, arrays)
