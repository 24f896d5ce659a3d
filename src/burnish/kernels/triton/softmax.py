"""A softmax over keys, block by block (Triton): the operations that sampler and trainer share, so that both get the
same bits.

m      [rows]     the largest product of a query and a key so far, not yet scaled
total  [rows]     the sum of e^(product - m), scaled
acc    [rows, D]  the same sum, each weighted by its value: acc / total is what the row sees
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def look(q, keys, values, seen, m, total, acc, scale, MASKED: tl.constexpr):
    """Extend a softmax by one more block of keys. scale > 0, to the base 2.

    Where a product is followed by a sum, it says whether they are one operation: a compiler would decide it anew in
    every kernel.
    """
    s = tl.dot(q, tl.trans(keys))
    if MASKED:
        s = tl.where(seen, s, float("-inf"))
    top = tl.maximum(m, tl.max(s, 1))
    safe = tl.where(top == float("-inf"), 0.0, top)  # a row that has seen nothing yet, because of its window
    p = tl.exp2((s - safe[:, None]) * scale)
    shrink = tl.exp2((m - safe) * scale)
    total = tl.fma(total, shrink, tl.sum(p, 1))
    acc = tl.dot(p.to(values.dtype), values, acc * shrink[:, None])
    return top, total, acc


@triton.jit
def merge(m, total, acc, later_m, later_total, later_acc, scale):
    """One softmax of two: over some keys, and over keys that come after them."""
    top = tl.maximum(m, later_m)
    safe = tl.where(top == float("-inf"), 0.0, top)
    shrink, later = tl.exp2((m - safe) * scale), tl.exp2((later_m - safe) * scale)
    total = tl.fma(total, shrink, later_total * later)
    acc = tl.fma(acc, tl.broadcast_to(shrink[:, None], acc.shape), later_acc * later[:, None])
    return top, total, acc
