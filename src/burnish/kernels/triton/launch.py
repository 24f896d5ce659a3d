"""How kernels of a decode step follow each other: on Hopper GPUs the next one starts before the last has ended.

A kernel that is launched so ("programmatic dependent launch") begins with `after`, and may use the time before it to
bring weights into the L2 cache, which no kernel before it writes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

LINE = tl.constexpr(64)  # numbers of two bytes in a line of the cache
LINES = tl.constexpr(256)  # lines that a program asks for at once
SYSTEMS = 1024  # bytes of a multiprocessor's memory that the system takes for each program


@triton.jit
def after(PDL: tl.constexpr):
    """Let the next kernel come onto the device, then wait for what the one before has written."""
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        tl.extra.cuda.gdc_wait()


@triton.jit
def nearer(at):
    """Ask for the lines at these addresses, so that they are in the cache when they are loaded."""
    tl.inline_asm_elementwise(
        "prefetch.global.L2 [$1]; mov.b32 $0, 0;", "=r,l", [at.to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1
    )


@triton.jit
def after_fetching(weight, size, PDL: tl.constexpr):
    """As `after`; meanwhile a weight, which no kernel before writes, is brought nearer: each program has its share of
    it.
    """
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
        program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
        step = tl.num_programs(0) * tl.num_programs(1) * LINES * LINE
        for first in range(program * LINES * LINE, size, step):
            nearer(weight + tl.minimum(first + tl.arange(0, LINES) * LINE, size - 1))
        tl.extra.cuda.gdc_wait()


@cache
def multiprocessors(device: torch.device) -> tuple[int, int]:
    """How many the device has, and how many bytes of its own memory each; without a device, those of an H200."""
    if device.type != "cuda":
        return 132, 228 << 10
    about: Any = torch.cuda.get_device_properties(device)
    return about.multi_processor_count, about.shared_memory_per_multiprocessor


@cache
def _chained(device: torch.device) -> dict[str, Any]:
    able = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
    return {"PDL": True, "launch_pdl": True} if able else {"PDL": False}


def chained(x: Tensor) -> dict[str, Any]:
    """How to launch a kernel that begins with `after`: where the device can, before the one before it has ended."""
    return _chained(x.device)
