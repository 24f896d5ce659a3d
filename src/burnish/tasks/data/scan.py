"""One pass over all rows before a run: bad rows are found now, and what is needed to split them is kept (16 bytes a
row). What took long is kept in the cache."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from burnish.core.randomness import key_of
from burnish.media.store import STORE
from burnish.tasks.data import cache
from burnish.tasks.data.formats import to_last_reply, to_task
from burnish.tasks.data.preferences import NoPreference
from burnish.tasks.data.rows import Rows

VERSION = 5  # of what a scan finds; a cache of another version is not used
WEIGHTS = "message weights"  # in `gives`, where a message counts in part
UNCLEAR_LABELS = "unclear labels"  # in `gives`, where a label is neither true nor false
AS_IT_IS, CUT, WITHOUT_REPLY = range(3)  # what a method that learns from replies makes of a row
REMARKS = frozenset({WEIGHTS, UNCLEAR_LABELS})  # on some rows, while all else in `gives` is in every row


@dataclass(frozen=True)
class Scan:
    """What is known of a table.

    hashes    [rows] int64: of the key of each row's task
    kept      [rows] bool: rows that make a task; the others say nothing (replies that are equal or ranked the same)
    ends      [rows] uint8: CUT: a conversation goes on after its last reply; WITHOUT_REPLY: it has none
    gives     the keys of Task.given that every kept row has, and REMARKS on any of them
    demonstrates  the same where conversations are cut after their last reply, and those without one are left out
    counts    how many rows have each key
    roles     of conversations that do not end with a reply
    """

    hashes: np.ndarray
    kept: np.ndarray
    ends: np.ndarray
    gives: frozenset[str]
    demonstrates: frozenset[str]
    counts: Mapping[str, int]
    roles: frozenset[str]


_SETS = ("gives", "demonstrates", "roles")


def common(gives: Iterable[frozenset[str]]) -> frozenset[str]:
    """What all of several tables or sources give, and the remarks on any of them."""
    every = list(gives)
    return frozenset.intersection(*every) | (frozenset().union(*every) & REMARKS)


def scan(
    rows: Rows, columns: Mapping[str, str], identity: Callable[[], str | None], folder: Path | None = None
) -> Scan:
    """Read every row once. identity: of the files, for the cache; None for rows that are not in files. folder: of the
    files, from which the paths of pictures are read.
    """
    files = identity()
    name = cache.fingerprint("scan", VERSION, files, sorted(columns.items())) if files else None
    if name and (known := cache.recall(name)):
        told = json.loads(bytes(known["told"]))
        sets = {name: frozenset(told[name]) for name in _SETS}
        return Scan(known["hashes"], known["kept"], known["ends"], counts=told["counts"], **sets)
    start = time.perf_counter()
    with STORE.naming():
        found = _scanned(rows, columns, folder)
    if name and time.perf_counter() - start > cache.WORTH_SECONDS and identity() == files:
        listed = {name: sorted(getattr(found, name)) for name in _SETS}
        told = json.dumps({**listed, "counts": dict(found.counts)}).encode()
        arrays = {"hashes": found.hashes, "kept": found.kept, "ends": found.ends}
        cache.keep(name, {**arrays, "told": np.frombuffer(told, np.uint8)})
    return found


def _scanned(rows: Rows, columns: Mapping[str, str], folder: Path | None) -> Scan:
    count = len(rows)
    hashes, kept, ends = np.zeros(count, np.int64), np.zeros(count, bool), np.zeros(count, np.uint8)
    keys: Counter[frozenset[str]] = Counter()
    replies: Counter[frozenset[str]] = Counter()
    roles: set[str] = set()
    weighs = unclear = False
    for index, row in enumerate(rows):
        try:
            task = to_task(row, columns, rows.where(index), folder)
        except NoPreference:
            continue
        kept[index], hashes[index] = True, key_of("heldout", task.key)
        keys[frozenset(task.given)] += 1
        last = to_last_reply(task)
        ends[index] = WITHOUT_REPLY if last is None else CUT if last is not task else AS_IT_IS
        if last is not None:
            replies[frozenset(last.given)] += 1
        if last is not task and not isinstance(task.prompt, str):
            roles.update(str(message["role"])[:40] for message in task.prompt)
        weighs = weighs or any(m.get("weight", 1.0) not in (0.0, 1.0) for m in task.given.get("messages") or ())
        unclear = unclear or not isinstance(task.given.get("label", True), bool)
    counts: Counter[str] = Counter()
    for present, times in keys.items():
        counts.update(dict.fromkeys(present, times))
    remarks = {*([WEIGHTS] if weighs else ()), *([UNCLEAR_LABELS] if unclear else ())}
    gives, demonstrates = (frozenset.intersection(*found) if found else frozenset() for found in (keys, replies))
    return Scan(hashes, kept, ends, gives | remarks, demonstrates | remarks, counts, frozenset(roles))
