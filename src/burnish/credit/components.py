"""Several scores at once: each is normalised in its group before they are added (GDPO, arXiv 2601.05242)."""

from __future__ import annotations

import statistics


def normalised(values: list[float], eps: float) -> list[float]:
    """(x - mean) / (std + eps) with the sample standard deviation; 0 where nothing differs."""
    mean = sum(values) / max(1, len(values))
    std = statistics.stdev(values) if len(values) > 1 else 0.0
    return [(x - mean) / (std + eps) if std else 0.0 for x in values]
