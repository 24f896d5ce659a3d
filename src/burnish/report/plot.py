"""Line plots in the terminal with braille characters, each with 2 x 4 dots."""

from __future__ import annotations

from collections.abc import Sequence

Point = tuple[float, float]
_DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))  # bits of the left and the right column, top to bottom


def plot(points: Sequence[Point], *, end: float, width: int, height: int, low: float, high: float) -> list[str]:
    """Plot points (x in 0..end, y in low..high) as `height` lines of `width` characters."""
    columns = _columns(points, end, 2 * width)
    cells = [[0] * width for _ in range(height)]
    rows = 4 * height - 1
    before: int | None = None
    for x, y in enumerate(columns):
        if y is None:
            continue
        level = rows - round(min(1.0, max(0.0, (y - low) / (high - low))) * rows)
        reach = level if before is None else before + (1 if level > before else -1 if level < before else 0)
        for dot in range(min(level, reach), max(level, reach) + 1):
            cells[dot // 4][x // 2] |= _DOTS[x % 2][dot % 4]
        before = level
    return ["".join(chr(0x2800 + cell) for cell in row) for row in cells]


def _columns(points: Sequence[Point], end: float, n: int) -> list[float | None]:
    """One y per column: the mean of its points, or linear interpolation between neighbours; None outside of them."""
    sums: dict[int, list[float]] = {}
    for x, y in points:
        sums.setdefault(min(n - 1, int(x / end * n)), []).append(y)
    means = sorted((column, sum(ys) / len(ys)) for column, ys in sums.items())
    columns: list[float | None] = [None] * n
    for (a, y), (b, z) in zip(means, means[1:] or means, strict=False):
        for column in range(a, b + 1):
            columns[column] = y + (z - y) * (column - a) / max(1, b - a)
    return columns
