"""The same numbers multiplied give the same bits, wherever they lie in memory: a run repeats itself on every processor."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path


def settle_products() -> None:
    """Tell MKL, which torch multiplies with on a CPU, to work in one order. It is asked before the first product of a process.

    On Intel's processors it does so by itself; on others, unless it is told to, the order depends on where numbers lie.
    Whoever has set MKL_CBWR knows better.
    """
    if "MKL_CBWR" not in os.environ and not made_by_intel():
        os.environ["MKL_CBWR"] = "AUTO"


def made_by_intel() -> bool:
    """Whether the processor says so itself."""
    return "GenuineIntel" in _maker()


@cache
def _maker() -> str:
    """Who made the processor, as it says itself."""
    try:
        with Path("/proc/cpuinfo").open() as lines:
            return next((line for line in lines if line.startswith("vendor_id")), "")
    except OSError:
        return platform.processor()
