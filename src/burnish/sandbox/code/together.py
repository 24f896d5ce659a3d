"""The memory of all processes below one together, read from /proc: limits of the system count each alone."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

EVERY = 0.05  # seconds between two looks
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Watch:
    """Looks at the memory of all below a process, every EVERY seconds. most: bytes that they may have together."""

    def __init__(self, pid: int, most: int) -> None:
        self._pid, self._most = pid, most
        self._next = time.monotonic() + EVERY

    def over(self) -> bool:
        """Whether they have more now. Pages that several share count once, but that takes a longer look."""
        if time.monotonic() < self._next:
            return False
        pids = below(self._pid)
        more = sum(map(_resident, pids)) > self._most and sum(map(_share, pids)) > self._most
        self._next = time.monotonic() + EVERY
        return more


def below(pid: int) -> list[int]:
    """The processes that a process started, and those that they started."""
    pids: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # the thread has ended
            for child in map(int, thread.read_text().split()):
                pids += [child, *below(child)]
    return pids


def _resident(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE
    return 0


def _share(pid: int) -> int:
    """The resident bytes of a process, each page divided by the number of processes that have it."""
    with contextlib.suppress(OSError, IndexError, ValueError):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("Pss:")) << 10
    return _resident(pid)  # it may not be looked at so closely
