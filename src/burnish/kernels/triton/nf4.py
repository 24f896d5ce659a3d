"""Four-bit weights made dense (forward/nf4.py), at the speed of memory: 0.53 bytes are read and 2 written a weight."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from burnish.forward.nf4 import BLOCK, codes_on

BYTES = 1024  # bytes of codes that one program takes


@triton.jit
def _dense(packed, scales, codes, out, size, BYTES: tl.constexpr, OF_A_SCALE: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * BYTES
    at = first + tl.arange(0, BYTES)
    both = tl.load(packed + at, mask=at < size, other=0).to(tl.int32)
    scale = tl.load(scales + at // OF_A_SCALE, mask=at < size, other=0.0).to(tl.float32)
    left, right = tl.load(codes + (both >> 4)) * scale, tl.load(codes + (both & 15)) * scale
    place = 2 * first + tl.arange(0, 2 * BYTES)
    tl.store(out + place, tl.interleave(left, right).to(out.dtype.element_ty), mask=place < 2 * size)


def dense(packed: Tensor, scales: Tensor, out: Tensor) -> None:
    """Write scale x code of every weight. packed [rows, columns / 2], scales [rows, columns / 64], out dense."""
    assert packed.is_contiguous() and scales.is_contiguous() and out.is_contiguous()
    size = packed.numel()
    _dense[(triton.cdiv(size, BYTES),)](packed, scales, codes_on(packed.device), out, size, BYTES, BLOCK // 2)
