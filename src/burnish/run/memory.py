"""Resident memory of the process, and detection of steady growth (a leak)."""

from __future__ import annotations

import os
import statistics
from collections.abc import Collection
from pathlib import Path

WINDOW = 20  # steps per window; medians of windows are compared
RISES = 3  # consecutive windows that must each exceed the one before
SHARE, LEAST = 0.02, 64.0  # growth: at least this share per window, and this many MiB in total


def resident_mb() -> float:
    """Resident memory of this process in MiB; 0 if the system has no /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def growing(history: Collection[float]) -> str:
    """A warning if the memory per step (MiB) has grown steadily up to now; otherwise an empty string.

    One jump (a longer batch, the buffers of the first checkpoint) gives no warning: RISES windows in a row must grow.
    """
    if len(history) < WINDOW * (RISES + 1):
        return ""
    recent = list(history)[-WINDOW * (RISES + 1) :]
    medians = [statistics.median(recent[k * WINDOW : (k + 1) * WINDOW]) for k in range(RISES + 1)]
    rises = all(later > earlier * (1 + SHARE) for earlier, later in zip(medians, medians[1:], strict=False))
    if not rises or medians[-1] - medians[0] < LEAST:
        return ""
    pace = (medians[-1] - medians[0]) / (RISES * WINDOW)
    return (
        f"the memory of this process grows steadily, by {pace:.1f} MiB a step, to {medians[-1]:,.0f} MiB: "
        "look for a reward or a task that keeps what it sees"
    )
