"""One pass over all rows before a run: bad rows are found now, and what is needed to split them is kept (16 bytes a
row). What took long is kept in the cache."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from burnish.core.randomness import key_of
from burnish.tasks.data import cache
from burnish.tasks.data.formats import to_task
from burnish.tasks.data.preferences import NoPreference
from burnish.tasks.data.rows import Rows

VERSION = 3  # of what a scan finds; a cache of another version is not used
WEIGHTS = "message weights"  # in `gives`, where a message counts in part
UNCLEAR_LABELS = "unclear labels"  # in `gives`, where a label is neither true nor false
REMARKS = frozenset({WEIGHTS, UNCLEAR_LABELS})  # on some rows, while all else in `gives` is in every row


@dataclass(frozen=True)
class Scan:
    """What is known of a table.

    hashes    [rows] int64: of the key of each row's task
    kept      [rows] bool: rows that make a task; the others say nothing (replies that are equal or ranked the same)
    gives     the keys of Task.given that every kept row has, and REMARKS on any of them
    counts    how many rows have each key
    """

    hashes: np.ndarray
    kept: np.ndarray
    gives: frozenset[str]
    counts: Mapping[str, int]


def common(gives: Iterable[frozenset[str]]) -> frozenset[str]:
    """What all of several tables or sources give, and the remarks on any of them."""
    every = list(gives)
    return frozenset.intersection(*every) | (frozenset().union(*every) & REMARKS)


def scan(rows: Rows, columns: Mapping[str, str], identity: Callable[[], str | None]) -> Scan:
    """Read every row once. identity: of the files, for the cache; None for rows that are not in files."""
    files = identity()
    name = cache.fingerprint("scan", VERSION, files, sorted(columns.items())) if files else None
    if name and (known := cache.recall(name)):
        told = json.loads(bytes(known["told"]))
        return Scan(known["hashes"], known["kept"], frozenset(told["gives"]), told["counts"])
    start = time.perf_counter()
    found = _scanned(rows, columns)
    if name and time.perf_counter() - start > cache.WORTH_SECONDS and identity() == files:
        told = json.dumps({"gives": sorted(found.gives), "counts": dict(found.counts)}).encode()
        arrays = {"hashes": found.hashes, "kept": found.kept, "told": np.frombuffer(told, np.uint8)}
        cache.keep(name, arrays)
    return found


def _scanned(rows: Rows, columns: Mapping[str, str]) -> Scan:
    count = len(rows)
    hashes, kept = np.zeros(count, np.int64), np.zeros(count, bool)
    keys: Counter[frozenset[str]] = Counter()
    weighs = unclear = False
    for index, row in enumerate(rows):
        try:
            task = to_task(row, columns, rows.where(index))
        except NoPreference:
            continue
        kept[index], hashes[index] = True, key_of("heldout", task.key)
        keys[frozenset(task.given)] += 1
        weighs = weighs or any(m.get("weight", 1.0) not in (0.0, 1.0) for m in task.given.get("messages") or ())
        unclear = unclear or not isinstance(task.given.get("label", True), bool)
    counts: Counter[str] = Counter()
    for present, times in keys.items():
        counts.update(dict.fromkeys(present, times))
    gives = frozenset.intersection(*keys) if keys else frozenset()
    remarks = {*([WEIGHTS] if weighs else ()), *([UNCLEAR_LABELS] if unclear else ())}
    return Scan(hashes, kept, gives | remarks, counts)
