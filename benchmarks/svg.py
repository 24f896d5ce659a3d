"""A few marks on a canvas, as SVG text: enough for bars and curves, on light and on dark pages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

INK = "ink"  # classes whose colours follow the page
FAINT = "faint"
OURS = "#1098ad"
OTHERS = "#868e96"
CEILING = "#e8590c"

_STYLE = """<style>
text { font-family: system-ui, sans-serif; font-size: 12px; fill: #343a40 }
text.faint { fill: #6c757d } line.faint { stroke: #dee2e6 } line.ink { stroke: #212529 }
text.strong { font-weight: 600 }
@media (prefers-color-scheme: dark) {
  text { fill: #dee2e6 } text.faint { fill: #adb5bd } line.faint { stroke: #495057 } line.ink { stroke: #f8f9fa }
}
</style>"""


class Canvas:
    """Marks in the order in which they are drawn."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width, self.height = width, height
        self._marks = [f"<title>{escape(title)}</title>", _STYLE]

    def text(self, x: float, y: float, words: str, *, anchor: str = "start", kind: str = INK) -> None:
        self._marks.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>'
        )

    def bar(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        self._marks.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(1.0, width):.1f}" height="{height:.1f}" '
            f'rx="2" fill="{colour}"/>'
        )

    def line(self, x1: float, y1: float, x2: float, y2: float, *, kind: str = FAINT) -> None:
        self._marks.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>')

    def curve(self, points: Sequence[tuple[float, float]], colour: str, *, dashed: bool = False) -> None:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        dash = ' stroke-dasharray="6 4"' if dashed else ""
        self._marks.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        if not dashed:
            self._marks += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points]

    def __str__(self) -> str:
        size = f'width="{self.width:.0f}" height="{self.height:.0f}" viewBox="0 0 {self.width:.0f} {self.height:.0f}"'
        return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>\n' + "\n".join(self._marks) + "\n</svg>\n"


class Log:
    """A logarithmic axis from `low` to `high`, laid from pixel `start` to pixel `end`."""

    def __init__(self, low: float, high: float, start: float, end: float) -> None:
        self.low, self.high, self.start, self.end = low, max(high, low * 1.01), start, end

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Powers of ten inside, with twos and fives between them where those alone are too few."""
        powers = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        found = [10.0**p for p in powers if self.low <= 10.0**p <= self.high]
        if len(found) >= 3:
            return found
        return [step * 10.0**p for p in powers for step in (1, 2, 5) if self.low <= step * 10.0**p <= self.high]
