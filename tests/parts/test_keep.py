"""Freed memory stays with the process."""

from __future__ import annotations

import ctypes
import sys

import pytest
import torch

from burnish.cast.keep import keep_memory


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="glibc keeps its own ways"
)
def test_a_tensor_made_again_costs_no_new_pages() -> None:
    import resource

    keep_memory()
    torch.ones(1 << 24)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(1 << 24)  # 64 MiB: 16,384 pages, were they new
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < 8192
