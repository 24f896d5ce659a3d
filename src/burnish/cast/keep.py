"""Memory that a process has once been given stays with it.

By default the C library hands large pieces back to the system when they are freed, and has to be given them again, zeroed and
page by page, when the next step makes tensors of the same sizes.
"""

from __future__ import annotations

import ctypes
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # of glibc's mallopt


@cache
def keep_memory() -> None:
    """From now on freed memory is kept for the next tensors; where the C library is not glibc, nothing changes."""
    if sys.platform != "linux":
        return
    settle = getattr(ctypes.CDLL(None), "mallopt", None)
    if settle is not None:
        settle(_TRIM_THRESHOLD, -1)  # never give memory back
        settle(_MMAP_MAX, 0)  # and take none that could only be given back
