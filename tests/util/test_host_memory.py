"""glibc malloc keeps freed memory in the process."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

AGAIN = """
import resource, torch
from burnish.util.host_memory import keep_memory
keep_memory()
for _ in range(20):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(1 << 24)  # 64 MiB: 16,384 pages, were they new
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="glibc keeps its own ways"
)
def test_a_tensor_made_again_costs_no_new_pages() -> None:
    """In a process of its own: in that of all tests, who allocated what before decides where there is room.

    The first seven may be new: glibc keeps as many crumbs of each size apart, and a crumb behind a freed tensor's place
    makes it too small for the next aligned one.
    """
    done = subprocess.run([sys.executable, "-c", AGAIN], capture_output=True, text=True, check=True)
    assert max(map(int, done.stdout.split()[-10:])) < 1024
