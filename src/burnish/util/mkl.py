"""Reproducible matmuls on CPUs: set MKL_CBWR, so that results do not depend on memory alignment."""

from __future__ import annotations

import os
import platform
from functools import cache
from pathlib import Path


def make_mkl_reproducible() -> None:
    """Make MKL, torch's CPU BLAS, use one summation order. To be called before the first matmul of a process.

    On Intel processors this is MKL's default; on others the order depends on memory alignment without it. A value of
    MKL_CBWR set by the user is kept.
    """
    if "MKL_CBWR" not in os.environ and not made_by_intel():
        os.environ["MKL_CBWR"] = "AUTO"


def made_by_intel() -> bool:
    """Whether the CPU vendor is Intel."""
    return "GenuineIntel" in _maker()


@cache
def _maker() -> str:
    """The CPU vendor, from /proc/cpuinfo."""
    try:
        with Path("/proc/cpuinfo").open() as lines:
            return next((line for line in lines if line.startswith("vendor_id")), "")
    except OSError:
        return platform.processor()
