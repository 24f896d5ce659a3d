"""The machine's memory: how much there is, and that a process keeps what it has freed.

By default glibc returns large blocks when they are freed, and the next step, which allocates tensors of the same sizes,
pays for page faults and zeroing again.
"""

from __future__ import annotations

import ctypes
import os
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of glibc's mallopt


def host_memory() -> int:
    """The machine's memory in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@cache
def keep_memory() -> None:
    """Keep freed memory in this process from now on; no effect without glibc."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_TRIM_THRESHOLD, -1)  # never trim the heap
        mallopt(_MMAP_MAX, 0)  # never use mmap, because mmapped blocks are returned when freed
