"""How far boxes and intervals overlap: IoU, GIoU, temporal IoU, and the greedy matching of boxes that were found."""

from __future__ import annotations

from collections.abc import Sequence

Box = tuple[float, ...]  # x1, y1, x2, y2


def area(box: Box) -> float:
    """Zero for a box whose sides are the wrong way round."""
    return max(0.0, box[2] - box[0]) * max(0.0, box[3] - box[1])


def iou(one: Box, other: Box) -> float:
    """|A and B| / |A or B|; 0 where both are empty."""
    both = area((max(one[0], other[0]), max(one[1], other[1]), min(one[2], other[2]), min(one[3], other[3])))
    either = area(one) + area(other) - both
    return both / either if either > 0 else 0.0


def giou(one: Box, other: Box) -> float:
    """IoU - (hull - |A or B|) / hull, from -1 to 1 (Rezatofighi et al., 2019)."""
    both = area((max(one[0], other[0]), max(one[1], other[1]), min(one[2], other[2]), min(one[3], other[3])))
    either = area(one) + area(other) - both
    hull = area((min(one[0], other[0]), min(one[1], other[1]), max(one[2], other[2]), max(one[3], other[3])))
    return both / either - (hull - either) / hull if either > 0 and hull > 0 else 0.0


def hull_overlap(one: tuple[float, float], other: tuple[float, float]) -> float:
    """The overlap of two intervals over their hull, max end - min start: the temporal IoU where they overlap."""
    both = min(one[1], other[1]) - max(one[0], other[0])
    hull = max(one[1], other[1]) - min(one[0], other[0])
    return max(0.0, both) / hull if hull > 0 else 0.0


def matched(found: Sequence[tuple[Box, float]], wanted: Sequence[Box], least: float) -> list[tuple[int, int, float]]:
    """(number found, number wanted, IoU) of pairs: each box in its order takes the free one that it overlaps most,
    if their IoU is at least `least`.
    """
    free, pairs = set(range(len(wanted))), []
    for i, (box, _) in enumerate(found):
        best = max(sorted(free), key=lambda j: iou(box, wanted[j]), default=None)
        if best is not None and iou(box, wanted[best]) >= least:
            free.discard(best)
            pairs.append((i, best, iou(box, wanted[best])))
    return pairs
