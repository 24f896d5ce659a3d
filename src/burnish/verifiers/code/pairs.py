"""Which programs are compared, by the shares of tests that they pass."""

from __future__ import annotations

from collections.abc import Sequence

_ROUNDING = 1e-9  # 0.9 - 0.5 is a little less than 0.4


def share_pairs(shares: Sequence[float], high: float = 0.8, gap: float = 0.4) -> list[tuple[int, int]]:
    """AceCoder's pairs (arXiv 2502.01718): chosen at least `high`, better by at least `gap`, rejected above 0.

    gap = 0 and high = 0 give all ordered pairs of programs that pass something.
    """
    pairs = []
    for i, chosen in enumerate(shares):
        for j, rejected in enumerate(shares):
            if i != j and chosen >= high - _ROUNDING and chosen - rejected >= gap - _ROUNDING and rejected > 0:
                pairs.append((i, j))
    return pairs
