"""What this process has done and is doing, for those who wait for it: read by another process, while this one hangs.

A rank counts units of work (a decode step, a micro-batch, an exchange with other ranks), says whether it waits for
others, for how long what it does now may go without a unit and without computing, and for how long without a unit at
all. All of it is in a small file that is mapped into memory: writing it takes no system call, and a process that hangs
need not answer. Without a file nothing is counted.
"""

from __future__ import annotations

import math
import mmap
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# units done, seconds without one that are allowed to it idle, and computing, waits for others, what is being done
LAYOUT = "<Qdd?40s"
SAMPLING, LEARNING = "sampling", "learning"
IN_OWN_CODE = 30.0  # seconds, where only burnish's own code runs, which computes all the time
ELSEWHERE = 3600.0  # seconds, where a user's code, a download or a disk may take its time
ENOUGH, LONGER = 20, 20.0  # after so many decode steps, one that takes so many times as long as the longest is endless

_layout = struct.Struct(LAYOUT)


class WorkUnits:
    """The state of this process. Of its threads (one may sample ahead, with --lag) each may wait or be in own code."""

    def __init__(self) -> None:
        self._map: mmap.mmap | None = None
        self._lock = threading.Lock()
        self._done, self._waits, self._what = 0, 0, ""  # waits: threads that wait for others
        self._inside: list[str] = []  # what threads do in own code, the latest last
        self._limit = self._elsewhere = ELSEWHERE
        self._own = IN_OWN_CODE
        self._most: float | None = None  # seconds without a unit, whatever it does, as the user has set them
        self._begun, self._seen, self._longest = 0.0, 0, 0.0  # of the units inside of `own_code`

    def publish(self, file: Path) -> None:
        """Write the state into this file from now on."""
        with open(file, "w+b") as made:
            made.write(bytes(_layout.size))
            made.flush()
            self._map = mmap.mmap(made.fileno(), _layout.size)
        self._write()

    def allow(self, seconds: float | None) -> None:
        """How long this process may finish nothing while others wait for it; None: as long as what it does may take."""
        self._most = seconds
        self._own, self._elsewhere = (IN_OWN_CODE, ELSEWHERE) if seconds is None else (seconds, seconds)
        self._limit = self._elsewhere
        self._write()

    def done(self) -> None:
        """A unit of work is done."""
        with self._lock:
            self._count()

    def _count(self) -> None:
        if self._map is not None:
            self._done += 1
            if self._what:
                now = time.monotonic()
                self._seen, self._longest = self._seen + 1, max(self._longest, now - self._begun)
                self._begun = now
            self._write()

    @contextmanager
    def own_code(self, what: str) -> Iterator[None]:
        """Inside, only burnish's own code runs in this thread."""
        with self._lock:
            self._inside.append(what)
            self._entered()
        try:
            yield
        finally:
            with self._lock:
                self._inside.remove(what)
                self._entered()

    def _entered(self) -> None:
        """What threads are inside of has changed. Where one is in own code, its limit holds for all of them."""
        self._what = self._inside[-1] if self._inside else ""
        self._limit = self._own if self._inside else self._elsewhere
        self._begun = time.monotonic()
        self._count()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Inside, this thread waits for others."""
        with self._lock:
            self._waits += 1
            self._write()
        try:
            yield
        finally:
            with self._lock:
                self._waits, self._begun = self._waits - 1, time.monotonic()
                self._count()

    def _endless(self) -> float:
        """How long this process may compute without a unit: honest units of a user's code may take any time."""
        if self._most is not None:
            return self._most
        return max(self._own, LONGER * self._longest) if self._what and self._seen >= ENOUGH else math.inf

    def _write(self) -> None:
        if self._map is not None:
            what = self._what.encode()
            _layout.pack_into(self._map, 0, self._done, self._limit, self._endless(), self._waits > 0, what)


UNITS = WorkUnits()
