"""Boxes and points that are written in replies: numbers, with commas between boxes."""

from __future__ import annotations

import re

from burnish.verifiers.overlap import Box

MOST = 32  # boxes, or points, that are read
_NUMBER = re.compile(r"-?\d{1,4}(?:\.\d{1,4})?")


def _numbers(text: str) -> list[float] | None:
    """The numbers of a text that is nothing but numbers and spaces."""
    words = text.split()
    if not words or len(words) > 5 * MOST or not all(_NUMBER.fullmatch(word) for word in words):
        return None
    return [float(word) for word in words]


def boxes_of(text: str) -> list[tuple[Box, float]] | None:
    """x1 y1 x2 y2, or x1 y1 x2 y2 c with a confidence of 0 to 10 tenths, with commas between boxes; None for anything
    else. A box without confidence has 1.
    """
    boxes: list[tuple[Box, float]] = []
    for part in text.split(",")[:MOST]:
        numbers = _numbers(part)
        if numbers is None or len(numbers) not in (4, 5):
            return None
        sure = min(10.0, max(0.0, numbers[4])) / 10 if len(numbers) == 5 else 1.0
        boxes.append((tuple(numbers[:4]), sure))
    return boxes


def points_of(text: str) -> list[tuple[float, float]] | None:
    """x1 y1 x2 y2 ...: an even count of numbers; None for anything else."""
    numbers = _numbers(text.replace(",", " "))
    if numbers is None or len(numbers) % 2 or len(numbers) > 2 * MOST:
        return None
    return list(zip(numbers[::2], numbers[1::2], strict=True))
