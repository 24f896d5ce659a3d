"""The cache of what is slow to find out about a dataset, by the state of its files (util/private_cache.py)."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from burnish.util import private_cache

FOLDER = "data"
WORTH_SECONDS = 2.0  # what took less is found out again


def fingerprint(*what: object) -> str:
    """A name for these values; a path stands for the file's name, size and time of its last change."""
    parts = []
    for one in what:
        if isinstance(one, Path):
            state = one.stat()
            parts.append(f"{one.resolve()} {state.st_size} {state.st_mtime_ns}")
        else:
            parts.append(str(one))
    return hashlib.sha256("\x1f".join(parts).encode()).hexdigest()[:32]


def recall(name: str) -> dict[str, np.ndarray] | None:
    """The arrays that were kept under a name; None where there are none, or where they cannot be read."""
    file = private_cache.recall(FOLDER, name)
    return None if file is None else {one: file.array(one) for one in file.names}


def keep(name: str, arrays: dict[str, np.ndarray]) -> None:
    """Keep arrays under a name. A cache that cannot be written is not used."""
    private_cache.keep(FOLDER, name, arrays)
