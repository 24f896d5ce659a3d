"""Charts as SVG text: lines with bands, values with intervals, scatter plots. They have no dependency.

    line_chart([Line("grpo", [(0, 0.4), (10, 0.9)])], x="steps", y="accuracy", y_form=percent)
    interval_chart([Row("grpo", 0.91, 0.88, 0.94)], x="accuracy", form=percent)
    point_chart([Dots("grpo", [(1e-5, 0.5), (1e-4, 0.9)])], x="lr", y="accuracy", log_x=True)

Colours are CSS variables (--chart-ink, --chart-faint, --chart-1 ... --chart-8): include STYLE in the page once, for
light and dark, or wrap one chart with `standalone` to make a file of it. Lines are labelled at their end, and every
point has a tooltip with its values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

Point = tuple[float, float]
Form = Callable[[float], str]
COLOURS = 8

_LIGHT = ("#0b7285", "#d9480f", "#6741d9", "#2b8a3e", "#c2255c", "#1864ab", "#946200", "#5c636a")
_DARK = ("#3bc9db", "#ff922b", "#b197fc", "#69db7c", "#f783ac", "#74c0fc", "#ffd43b", "#ced4da")


def _variables(ink: str, faint: str, grid: str, colours: Sequence[str]) -> str:
    numbered = "".join(f"--chart-{i}:{colour};" for i, colour in enumerate(colours, 1))
    return f"--chart-ink:{ink};--chart-faint:{faint};--chart-grid:{grid};{numbered}"


STYLE = (
    f":root{{{_variables('#212529', '#6c757d', '#e3e6e9', _LIGHT)}}}"
    f"@media (prefers-color-scheme:dark){{:root{{{_variables('#e9ecef', '#9aa2aa', '#343a40', _DARK)}}}}}"
    ".chart{font:11px system-ui,-apple-system,'Segoe UI',sans-serif;fill:var(--chart-ink);max-width:100%;height:auto}"
    ".chart .faint{fill:var(--chart-faint)}.chart .title{font-size:13px;font-weight:600}"
    ".chart .grid{stroke:var(--chart-grid);stroke-width:1}.chart .rule{stroke:var(--chart-faint);stroke-dasharray:3 3}"
)


@dataclass(frozen=True)
class Line:
    """A curve: its points, and a band of (x, low, high). `colour` counts from 1; 0 takes the line's position."""

    label: str
    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()
    colour: int = 0


@dataclass(frozen=True)
class Row:
    """A value with its interval, on one row; `note` is printed at the right, `faint` rows are grey."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    note: str = ""
    colour: int = 1
    faint: bool = False


@dataclass(frozen=True)
class Dots:
    """One series of a scatter plot."""

    label: str
    points: Sequence[Point]
    colour: int = 0


def percent(value: float) -> str:
    """Format a share: 0.5 as 50%."""
    return f"{100 * value:.0f}%" if abs(100 * value - round(100 * value)) < 0.05 else f"{100 * value:.1f}%"


def points(value: float) -> str:
    """Format a difference of shares in percentage points, with its sign: 0.05 as +5."""
    return f"{100 * value:+.3g}" if value else "0"


def short(value: float) -> str:
    """Format a number in few characters: 1500000 as 1.5M, 0.0001 as 0.0001, 1e-5 as 1e-05."""
    for size, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Axis ticks: about `about` round numbers from low to high, 1, 2 or 5 times a power of ten apart."""
    if not high > low:
        return [low]
    raw = (high - low) / max(1, about)
    size = 10 ** math.floor(math.log10(raw))
    step = next(size * k for k in (1, 2, 5, 10) if size * k >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 12) for k in range(first, last + 1)]


def line_chart(
    lines: Sequence[Line],
    *,
    title: str = "",
    x: str = "",
    y: str = "",
    x_form: Form = short,
    y_form: Form = short,
    y_range: Point | None = None,
    rule: float | None = None,
    log_x: bool = False,
    width: int = 680,
    height: int = 300,
) -> str:
    """Draw curves with their bands.

    rule   a dashed horizontal line, such as a threshold
    log_x  logarithmic x axis, with ticks at the points of the lines
    """
    lines = [line for line in lines if line.points]
    if not lines:
        return _empty(title, width, height)
    if log_x:
        x_form = _of_power(x_form)
        lines = [_logged(line) for line in lines]
    xs = [px for line in lines for px, _ in line.points]
    ys = [py for line in lines for _, py in line.points] + [
        v for line in lines for _, a, b in line.band for v in (a, b)
    ]
    if rule is not None:
        ys.append(rule)
    frame = _Frame(
        width, height, _span(xs), y_range or _span(ys, 0.05), bool(title), _gutter(line.label for line in lines)
    )
    if log_x:
        frame.x_marks = sorted(set(xs))
    body = [*frame.axes(x, y, x_form, y_form)]
    if rule is not None:
        body.append(
            f'<line class="rule" x1="{frame.left}" x2="{frame.right}" '
            f'y1="{frame.y(rule):.1f}" y2="{frame.y(rule):.1f}"/>'
        )
    for i, line in enumerate(lines):
        shade = 0.15 if len(lines) <= 4 else 0.07  # many overlapping bands must stay transparent
        body.append(_curve(line, _colour(line.colour, i), i, frame, x_form, y_form, shade))
    ends = _apart([frame.y(line.points[-1][1]) for line in lines], frame.top, frame.bottom)
    for i, (line, at) in enumerate(zip(lines, ends, strict=True)):
        body.append(
            f'<text x="{frame.right + 8}" y="{at + 4:.1f}" style="fill:{_colour(line.colour, i)}">'
            f"{escape(line.label)}</text>"
        )
    return _svg(title, width, height, body)


def interval_chart(
    rows: Sequence[Row],
    *,
    title: str = "",
    x: str = "",
    form: Form = short,
    x_range: Point | None = None,
    rule: float | None = None,
    width: int = 680,
) -> str:
    """Draw a row per value: a dot, its interval as a bar, and a note; `rule` is a dashed vertical line."""
    if not rows:
        return _empty(title, width, 60)
    ends = [v for row in rows for v in (row.value, row.low, row.high, rule) if v is not None]
    height = 22 * len(rows) + 44 + (24 if title else 0)
    notes = _gutter(row.note for row in rows)
    frame = _Frame(
        width,
        height,
        x_range or _span(ends, 0.04),
        (0.0, 1.0),
        bool(title),
        notes,
        left=_gutter(row.label for row in rows) + 4,
    )
    body = frame.x_axis(x, form)
    if rule is not None:
        body.append(
            f'<line class="rule" x1="{frame.x(rule):.1f}" x2="{frame.x(rule):.1f}" '
            f'y1="{frame.top}" y2="{frame.bottom}"/>'
        )
    for i, row in enumerate(rows):
        at = frame.top + 22 * i + 12
        tooltip = f"{row.label}: {form(row.value)}"
        mark = ""
        if row.low is not None and row.high is not None:
            tooltip += f" [{form(row.low)}, {form(row.high)}]"
            mark = (
                f'<line x1="{frame.x(row.low):.1f}" x2="{frame.x(row.high):.1f}" y1="{at}" y2="{at}" '
                'stroke-width="5" stroke-linecap="round" stroke-opacity=".35"/>'
            )
        colour = "var(--chart-faint)" if row.faint else _colour(row.colour, 0)
        body.append(
            f'<g style="stroke:{colour}"><title>{escape(tooltip)}</title>{mark}'
            f'<circle cx="{frame.x(row.value):.1f}" cy="{at}" r="3.5" style="fill:{colour}"/></g>'
            f'<text x="{frame.left - 8}" y="{at + 4}" text-anchor="end"{_faint(row.faint)}>{escape(row.label)}</text>'
            f'<text x="{frame.right + 8}" y="{at + 4}" class="faint">{escape(row.note)}</text>'
        )
    return _svg(title, width, height, body)


def point_chart(
    dots: Sequence[Dots],
    *,
    title: str = "",
    x: str = "",
    y: str = "",
    x_form: Form = short,
    y_form: Form = short,
    log_x: bool = False,
    width: int = 680,
    height: int = 300,
) -> str:
    """Draw a scatter plot; `log_x` makes the x axis logarithmic."""
    dots = [kind for kind in dots if kind.points]
    if not dots:
        return _empty(title, width, height)
    scale = math.log10 if log_x else float
    xs = [scale(px) for kind in dots for px, _ in kind.points]
    ys = [py for kind in dots for _, py in kind.points]
    frame = _Frame(width, height, _span(xs, 0.05), _span(ys, 0.08), bool(title), _gutter(kind.label for kind in dots))
    if log_x:
        frame.x_marks = sorted(set(xs))
    body = frame.axes(x, y, _of_power(x_form) if log_x else x_form, y_form)
    for i, kind in enumerate(dots):
        colour = _colour(kind.colour, i)
        body += [
            f'<circle cx="{frame.x(scale(px)):.1f}" cy="{frame.y(py):.1f}" r="4" style="fill:{colour}" '
            'fill-opacity=".75">'
            f"<title>{escape(f'{kind.label} {x_form(px)}: {y_form(py)}'.strip())}</title></circle>"
            for px, py in kind.points
        ]
        body.append(
            f'<text x="{frame.right + 8}" y="{frame.top + 14 * i + 10}" style="fill:{colour}">'
            f"{escape(kind.label)}</text>"
        )
    return _svg(title, width, height, body)


def standalone(svg: str) -> str:
    """The chart as a separate SVG file, with the style for light and dark."""
    head, mark, rest = svg.partition(">")
    return f"{head}{mark}<style>{STYLE}</style>{rest}\n"


class _Frame:
    """The plot area: maps values to pixels, and draws the axes."""

    def __init__(
        self, width: int, height: int, xs: Point, ys: Point, titled: bool, gutter: int, left: int = 52
    ) -> None:
        self.left, self.right = left, max(left + 60, width - 14 - gutter)
        self.top, self.bottom = 34 if titled else 12, height - 36
        self.xs, self.ys = xs, ys
        self.x_marks: Sequence[float] = ()  # ticks to use instead of round numbers

    def x(self, value: float) -> float:
        low, high = self.xs
        return self.left + (value - low) / (high - low) * (self.right - self.left)

    def y(self, value: float) -> float:
        low, high = self.ys
        share = min(1.0, max(0.0, (value - low) / (high - low)))
        return self.bottom - share * (self.bottom - self.top)

    def x_axis(self, name: str, form: Form) -> list[str]:
        body = []
        marks = ticks(*self.xs, about=max(2, (self.right - self.left) // 90))
        for value in (self.x_marks or marks) if len(self.x_marks) <= len(marks) + 2 else marks:
            at = f"{self.x(value):.1f}"
            body.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{self.top}" y2="{self.bottom}"/>')
            body.append(
                f'<text class="faint" x="{at}" y="{self.bottom + 15}" text-anchor="middle">{escape(form(value))}</text>'
            )
        middle = (self.left + self.right) / 2
        body.append(
            f'<text class="faint" x="{middle:.0f}" y="{self.bottom + 31}" text-anchor="middle">{escape(name)}</text>'
        )
        return body

    def axes(self, x: str, y: str, x_form: Form, y_form: Form) -> list[str]:
        body = self.x_axis(x, x_form)
        for value in ticks(*self.ys, about=max(3, (self.bottom - self.top) // 40)):
            at = self.y(value)
            body.append(f'<line class="grid" x1="{self.left}" x2="{self.right}" y1="{at:.1f}" y2="{at:.1f}"/>')
            body.append(
                f'<text class="faint" x="{self.left - 6}" y="{at + 4:.1f}" text-anchor="end">'
                f"{escape(y_form(value))}</text>"
            )
        middle = (self.top + self.bottom) / 2
        body.append(
            f'<text class="faint" transform="translate(11 {middle:.0f}) rotate(-90)" text-anchor="middle">'
            f"{escape(y)}</text>"
        )
        return body


def _curve(line: Line, colour: str, place: int, frame: _Frame, x_form: Form, y_form: Form, shade: float) -> str:
    body = [f'<g style="color:{colour}">']
    if line.band:
        upper = [f"{frame.x(px):.1f},{frame.y(high):.1f}" for px, _, high in line.band]
        lower = [f"{frame.x(px):.1f},{frame.y(low):.1f}" for px, low, _ in reversed(line.band)]
        body.append(f'<polygon points="{" ".join(upper + lower)}" fill="currentColor" fill-opacity="{shade}"/>')
    path = " ".join(f"{frame.x(px):.1f},{frame.y(py):.1f}" for px, py in line.points)
    dash = ' stroke-dasharray="6 3"' if place >= COLOURS else ""  # colours repeat: dashes distinguish them
    body.append(
        f'<polyline points="{path}" fill="none" stroke="currentColor" stroke-width="2" stroke-linejoin="round"{dash}/>'
    )
    if len(line.points) <= 60:
        body += [
            f'<circle cx="{frame.x(px):.1f}" cy="{frame.y(py):.1f}" r="2.5" fill="currentColor">'
            f"<title>{escape(f'{line.label} at {x_form(px)}: {y_form(py)}')}</title></circle>"
            for px, py in line.points
        ]
    return "".join(body) + "</g>"


def _of_power(form: Form) -> Form:
    return lambda power: form(10**power)


def _logged(line: Line) -> Line:
    points = [(math.log10(x), y) for x, y in line.points]
    return Line(line.label, points, [(math.log10(x), low, high) for x, low, high in line.band], line.colour)


def _colour(number: int, place: int) -> str:
    return f"var(--chart-{((number or place + 1) - 1) % COLOURS + 1})"


def _faint(is_faint: bool) -> str:
    return ' class="faint"' if is_faint else ""


def _span(values: Sequence[float], margin: float = 0.0) -> Point:
    """Smallest and largest value with a relative margin; never an empty range."""
    finite = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    if high - low < 1e-12:
        return low - (abs(low) or 1.0) * 0.1, high + (abs(high) or 1.0) * 0.1
    return low - margin * (high - low), high + margin * (high - low)


def _gutter(labels: Iterable[str]) -> int:
    """Width in pixels of the longest label at a font size of 11 pixels."""
    return round(6.3 * max((len(label) for label in labels), default=0)) + 10


def _apart(wanted: Sequence[float], top: float, bottom: float, least: float = 13.0) -> list[float]:
    """Vertical positions of labels near the wanted ones, at least `least` pixels apart."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed: dict[int, float] = {}
    before = top - least
    for i in order:
        before = placed[i] = max(wanted[i], before + least)
    limit = bottom + least
    for i in reversed(order):
        limit = placed[i] = min(placed[i], limit - least)
    return [placed[i] for i in range(len(wanted))]


def _svg(title: str, width: int, height: int, body: Sequence[str]) -> str:
    head = f'<text class="title" x="0" y="16">{escape(title)}</text>' if title else ""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" role="img" aria-label="{escape(title)}" '
        f'width="{width}" height="{height}" viewBox="0 0 {width} {height}">{head}{"".join(body)}</svg>'
    )


def _empty(title: str, width: int, height: int) -> str:
    return _svg(title, width, height, [f'<text class="faint" x="0" y="{height // 2}">nothing to draw</text>'])
