"""How much memory a run holds, and whether it keeps growing."""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from pathlib import Path

WINDOW = 20  # steps whose median is compared with the windows before
RISES = 3  # windows in a row that must be larger than the one before
SHARE, LEAST = 0.02, 64.0  # by at least this share each, and by so many MiB in all


def resident_mb() -> float:
    """MiB of memory that this process holds now; 0 where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def growing(history: Sequence[float]) -> str:
    """What to say where the memory of each step, so far, has grown steadily and lately; else nothing.

    One jump (a longer batch, the buffers of the first checkpoint) is no reason: RISES windows in a row are.
    """
    if len(history) < WINDOW * (RISES + 1):
        return ""
    recent = history[-WINDOW * (RISES + 1) :]
    medians = [statistics.median(recent[k * WINDOW : (k + 1) * WINDOW]) for k in range(RISES + 1)]
    rises = all(later > earlier * (1 + SHARE) for earlier, later in zip(medians, medians[1:], strict=False))
    if not rises or medians[-1] - medians[0] < LEAST:
        return ""
    pace = (medians[-1] - medians[0]) / (RISES * WINDOW)
    return (
        f"the memory of this process grows steadily, by {pace:.1f} MiB a step, to {medians[-1]:,.0f} MiB: "
        "look for a reward or a task that keeps what it sees"
    )
