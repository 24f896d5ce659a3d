"""Curves as SVG text, for pages that must stand alone: no script, no network; colours follow the page's light or dark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420, 200, 48, 12, 30, 26
COLOURS = ("#c4571d", "#2b6cb0", "#2e8b57", "#8e44ad", "#b7791f", "#178a94", "#c2417b", "#5b6470")
INK, LINE = "#8a8379", "#8a837944"  # greys that can be read on white and on black


@dataclass(frozen=True)
class Line:
    """A curve: its points, and the band around them where there is one (low, high for each point)."""

    label: str
    points: Sequence[Point]
    band: Sequence[tuple[float, float]] = ()
    dots: bool = False


def chart(title: str, lines: Sequence[Line], *, share: bool = False, note: str = "") -> str:
    """One drawing of some curves. share: the numbers are between 0 and 1 and written in percent."""
    lines = [line for line in lines if line.points]
    body = [f'<text x="{LEFT}" y="17" font-weight="600" fill="currentColor">{escape(title)}</text>']
    if note:
        body.append(f'<text x="{WIDTH - RIGHT}" y="17" text-anchor="end" fill="{INK}">{escape(note)}</text>')
    if lines:
        body += _axes_and_lines(lines, share)
    font = 'font-family="system-ui, sans-serif" font-size="11.5"'
    label = f'role="img" aria-label="{escape(title)} over steps"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" {font} {label}>'
    return f"{head}{''.join(body)}</svg>"


def _axes_and_lines(lines: Sequence[Line], share: bool) -> list[str]:
    values = [y for line in lines for _, y in line.points] + [y for line in lines for pair in line.band for y in pair]
    low, high = _range(values, share)
    end = max(1.0, *(x for line in lines for x, _ in line.points))

    def at(x: float, y: float) -> str:
        across = LEFT + (WIDTH - LEFT - RIGHT) * x / end
        return f"{across:.1f},{HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * (y - low) / (high - low):.1f}"

    body = []
    for mark in ticks(low, high, 4):
        y = at(0, mark).split(",")[1]
        text = f"{mark:.0%}" if share else f"{mark:.6g}"
        body.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}" stroke="{LINE}"/>')
        body.append(f'<text x="{LEFT - 6}" y="{float(y) + 4:.1f}" text-anchor="end" fill="{INK}">{text}</text>')
    for mark in (mark for mark in ticks(0, end, 5) if mark == int(mark)):
        x = at(mark, low).split(",")[0]
        body.append(f'<text x="{x}" y="{HEIGHT - 8}" text-anchor="middle" fill="{INK}">{int(mark)}</text>')
    for i, line in enumerate(lines):
        colour = COLOURS[i % len(COLOURS)]
        if line.band:
            above = [at(x, pair[1]) for (x, _), pair in zip(line.points, line.band, strict=True)]
            below = [at(x, pair[0]) for (x, _), pair in zip(line.points, line.band, strict=True)]
            body.append(f'<polygon points="{" ".join([*above, *reversed(below)])}" fill="{colour}" opacity="0.16"/>')
        points = " ".join(at(x, y) for x, y in line.points)
        shape = 'fill="none" stroke-width="2" stroke-linejoin="round" stroke-linecap="round"'
        body.append(
            f'<polyline points="{points}" stroke="{colour}" {shape}><title>{escape(line.label)}</title></polyline>'
        )
        if line.dots or len(line.points) == 1:
            for x, y in (at(*point).split(",") for point in line.points):
                body.append(f'<circle cx="{x}" cy="{y}" r="2.6" fill="{colour}"/>')
    return body


def bars(shares: Sequence[tuple[str, float]], width: int = 860) -> str:
    """Parts of a whole as one bar with its legend below."""
    total = sum(size for _, size in shares) or 1.0
    body, x, legend = [], 0.0, []
    for i, (name, size) in enumerate(shares):
        part, colour = size / total * width, COLOURS[i % len(COLOURS)]
        body.append(
            f'<rect x="{x:.1f}" y="0" width="{part:.1f}" height="22" fill="{colour}"><title>{escape(name)}</title></rect>'
        )
        legend.append(f'<tspan fill="{colour}">■</tspan> {escape(name)} {size / total:.0%}')
        x += part
    words = f'<text x="0" y="44" fill="currentColor">{" &#160; ".join(legend)}</text>'
    font = 'font-family="system-ui, sans-serif" font-size="13"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} 52" width="{width}" {font}>{"".join(body)}{words}</svg>'


def ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers between low and high, about so many."""
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    size = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.99)
    first = math.ceil(low / size - 1e-9)
    last = math.floor(high / size + 1e-9)
    return [float(f"{i * size:.10g}") for i in range(first, last + 1)]


def _range(values: Sequence[float], share: bool) -> tuple[float, float]:
    low, high = min(values), max(values)
    if share and low >= 0 and high <= 1:
        return 0.0, 1.0
    if high - low < 1e-9:
        room = max(0.05, abs(low) * 0.1)
        return low - room, high + room
    room = 0.06 * (high - low)
    return (0.0 if 0 <= low < room else low - room), high + room
