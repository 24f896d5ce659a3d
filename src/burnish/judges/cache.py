"""Answers of a judge on the disk, by a hash of everything that they depend on."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.util.files import read_json, write_text

FORMAT = 1


class AnswerCache:
    """One JSON file per answer in folders of two hexadecimal digits; written whole or not at all.

    A file that cannot be read, or belongs to another key, counts as absent. None as folder keeps nothing on the disk.
    """

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self.hits = 0
        self._lock = threading.Lock()

    def get(self, key: str) -> dict[str, Any] | None:
        """The answer that was stored under the key."""
        if self.folder is None:
            return None
        stored = read_json(self._file(key))
        if stored is None or stored.get("key") != key or not isinstance(stored.get("answer"), dict):
            return None
        with self._lock:
            self.hits += 1
        return dict(stored["answer"])

    def put(self, key: str, answer: Mapping[str, object]) -> None:
        """Store an answer; a disk that cannot be written is not an error, as the cache only saves calls."""
        if self.folder is None:
            return
        file = self._file(key)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            with self._lock:  # two threads may answer the same question; the name of a partial file is the same
                write_text(file, json.dumps({"key": key, "answer": answer}))
        except OSError:
            return

    def _file(self, key: str) -> Path:
        assert self.folder is not None
        return self.folder / key[:2] / f"{key[2:]}.json"


def cache_key(*what: object) -> str:
    """The hash of judge, template, text, settings and the number of the sample."""
    return hashlib.sha256(json.dumps([FORMAT, *map(str, what)]).encode()).hexdigest()
