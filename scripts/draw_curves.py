"""Small learning curves as SVG, drawn by hand: held-out values as a line over seeds, rewards of single
steps as dots.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 520, 180, 38, 150, 12, 26
Points = list[list[float]]


@dataclass(frozen=True)
class Curve:
    """One method's runs, as benchmarks/curves.json has them, and the colour they are drawn in."""

    label: str
    found: dict[str, Any]
    colour: str

    def lines(self) -> list[Points]:
        """The held-out values of each seed."""
        return [run["heldout"] for run in self.found["runs"]]

    def dots(self) -> Points:
        """The mean reward of each step, where it is one between 0 and 1, over the seeds that have it."""
        runs = [
            [[step + 1, value] for step, value in enumerate(run["reward"]) if value is not None]
            for run in self.found["runs"]
        ]
        return [[step, value] for step, value in mean_curve([run for run in runs if run]) if 0 <= value <= 1]


def mean_curve(curves: list[Points]) -> Points:
    """The mean at every step that all of them have."""
    if not curves:
        return []
    by_step = [dict(map(tuple, curve)) for curve in curves]  # type: ignore[arg-type]
    shared = sorted(set.intersection(*(set(found) for found in by_step)))
    return [[step, sum(found[step] for found in by_step) / len(by_step)] for step in shared]


def drawn(curves: list[Curve]) -> str:
    """The SVG: grid, a band from the least to the greatest seed, the mean line, the rewards, and the
    names at the ends.
    """
    last = max(step for curve in curves for line in curve.lines() for step, _ in line)
    body = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="11" fill="#868e96">'
    ]
    for value in (0.0, 0.25, 0.5, 0.75, 1.0):
        _, y = _place(0, value, last)
        body.append(
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#868e96" stroke-opacity="0.25"/>'
        )
        if value in (0.0, 0.5, 1.0):
            body.append(f'<text x="{LEFT - 4}" y="{y + 4:.1f}" text-anchor="end">{value:.0%}</text>')
    for step in (0, last // 2, last):
        x, y = _place(step, 0.0, last)
        body.append(
            f'<text x="{x:.1f}" y="{y + 16:.1f}" text-anchor="middle">{"step " if step == 0 else ""}{step:g}</text>'
        )
    ends: list[float] = []
    for curve in reversed(curves):
        body += _one(curve, last, ends)
    return "\n".join([*body, "</svg>"]) + "\n"


def _one(curve: Curve, last: float, ends: list[float]) -> list[str]:
    lines, found = curve.lines(), []
    mean = mean_curve(lines)
    if len(lines) > 1:
        by_step = {step: [dict(map(tuple, line))[step] for line in lines] for step, _ in mean}  # type: ignore[arg-type]
        edge = [(step, max(values)) for step, values in by_step.items()]
        edge += [(step, min(values)) for step, values in reversed(by_step.items())]
        found.append(f'<polygon points="{_points(edge, last)}" fill="{curve.colour}" fill-opacity="0.15"/>')
    for step, value in curve.dots():
        x, y = _place(step, value, last)
        found.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.8" fill="{curve.colour}" fill-opacity="0.6"/>')
    found.append(f'<polyline points="{_points(mean, last)}" fill="none" stroke="{curve.colour}" stroke-width="2"/>')
    x, y = _place(*mean[-1], last)
    while any(abs(y - other) < 12 for other in ends):
        y += 12
    ends.append(y)
    found.append(f'<text x="{x + 5:.1f}" y="{y + 4:.1f}" fill="{curve.colour}">{curve.label}</text>')
    return found


def _place(step: float, value: float, last: float) -> tuple[float, float]:
    x = LEFT + step / last * (WIDTH - LEFT - RIGHT)
    return x, HEIGHT - BOTTOM - value * (HEIGHT - TOP - BOTTOM)


def _points(curve: Any, last: float) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in (_place(step, value, last) for step, value in curve))
