"""The pictures of docs/performance.md, from the runs in benchmarks/results.

    python benchmarks/plots.py

Bars compare burnish with the baselines; curves show tokens a second against batch, length and group size, with the
ceiling of the machine drawn in. The SVGs are written by hand-sized code (svg.py) rather than by a plotting library:
they stay a few kilobytes of text that diffs well, follow the reader's light or dark page, and add no dependency.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import OURS, RESULTS, ROOT, unit
from records import quartiles, times_better, values
from svg import CEILING, OTHERS, Canvas, Log
from svg import OURS as TEAL

from burnish.report.charts import short

OUT = ROOT / "docs" / "performance"
WIDTH, NAMES, ENDS, BAR = 820, 120, 230, 18  # pixels: the picture, the names before the bars, the numbers after them
CROWDED = 28  # pixels that a number under an axis takes
AXES = {
    "batch": "rows sampled together",
    "length": "new tokens a row",
    "group": "rows that share a prompt",
    "prompt": "its tokens, shared by 8 rows",
}


def bars(parts: Mapping[str, Any], title: str) -> str | None:
    """Every part with its sides, burnish first. A bar is a rate, or seconds where shorter is better."""
    shown = {name: part for name, part in parts.items() if len(_measured(part)) > 1}
    if not shown:
        return None
    height = sum(44 + (BAR + 6) * len(_measured(part)) for part in shown.values()) + 10
    canvas = Canvas(WIDTH, height, title)
    y = 20.0
    for part in shown.values():
        canvas.text(0, y, part["title"], kind="strong")
        what = f"{unit(part['rate'])}, longer is better" if part["rate"] else "seconds, shorter is better"
        canvas.text(0, y + 15, what, kind="faint")
        y = _sides(canvas, part, y + 22) + 22
    return str(canvas)


def _measured(part: Mapping[str, Any]) -> list[str]:
    return [name for name, side in part["sides"].items() if side["runs"]]


def _sides(canvas: Canvas, part: Mapping[str, Any], y: float) -> float:
    of = "rate" if part["rate"] else "seconds"
    medians = {name: statistics.median(values(part, name, of)) for name in _measured(part)}
    scale = (WIDTH - NAMES - ENDS) / max(max(values(part, name, of)) for name in medians)
    for name, value in medians.items():
        ours = name == OURS
        canvas.text(NAMES - 8, y + 13, name, anchor="end", kind="strong" if ours else "ink")
        canvas.bar(NAMES, y, value * scale, BAR, TEAL if ours else OTHERS)
        low, _, high = quartiles(values(part, name, of))
        canvas.line(NAMES + low * scale, y + BAR / 2, NAMES + high * scale, y + BAR / 2, kind="ink")
        better = None if ours else times_better(part, OURS, name)
        end = f"{short(value)} {unit(part['rate'])}" + (f"  (burnish {better:.3g}x)" if better else "")
        canvas.text(NAMES + max(value, high) * scale + 6, y + 13, end)
        y += BAR + 6
    return y


def curves(part: Mapping[str, Any], title: str) -> str | None:
    """Panels: tokens a second against batch, length, group size (and the prompt's length), and the
    machine's ceiling.
    """
    points: dict[str, list[tuple[float, float, float | None]]] = {axis: [] for axis in AXES}
    runs = part["sides"].get(OURS, {}).get("runs", [])
    for number, fact in enumerate(part["facts"]["points"] if runs else ()):
        seconds = statistics.median(run["points"][number] for run in runs)
        top = fact["tokens"] / fact["floor_seconds"] if fact["floor_seconds"] else None
        points[fact["axis"]].append((fact["x"], fact["tokens"] / seconds, top))
    axes = [axis for axis in AXES if points[axis]]
    if not axes:
        return None
    canvas = Canvas(WIDTH, 290, title)
    canvas.text(0, 16, title, kind="strong")
    everything = [y for axis in axes for _, rate, top in points[axis] for y in (rate, top) if y]
    across = (WIDTH - 50) / len(axes)
    scale = Log(min(everything) / 1.3, max(everything) * 1.3, 240, 60)
    for number, axis in enumerate(axes):
        _panel(canvas, AXES[axis], sorted(points[axis]), scale, 50 + number * across, across - 26)
    canvas.curve([(50, 36), (75, 36)], TEAL)
    canvas.text(84, 40, "burnish, tokens a second", kind="faint")
    if any(top for axis in axes for _, _, top in points[axis]):
        canvas.curve([(260, 36), (285, 36)], CEILING, dashed=True)
        canvas.text(294, 40, "what the machine could do at most", kind="faint")
    return str(canvas)


def _panel(
    canvas: Canvas, label: str, points: list[tuple[float, float, float | None]], up: Log, left: float, width: float
) -> None:
    along = Log(points[0][0], points[-1][0], left + 12, left + width - 12)
    for tick in up.ticks():
        canvas.line(left, up(tick), left + width, up(tick))
        if left == 50:
            canvas.text(left - 6, up(tick) + 4, short(tick), anchor="end", kind="faint")
    free = left - width
    for x, _, _ in points:
        if along(x) - free >= CROWDED:  # else it would be written over the one before
            canvas.text(along(x), 256, f"{x:g}", anchor="middle", kind="faint")
            free = along(x)
    canvas.text(left + width / 2, 276, label, anchor="middle")
    tops = [(along(x), up(top)) for x, _, top in points if top]
    if tops:
        canvas.curve(tops, CEILING, dashed=True)
    canvas.curve([(along(x), up(rate)) for x, rate, _ in points], TEAL)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    shown = [RESULTS / "cpu.json", RESULTS / "gpu.json"]
    reader.add_argument(
        "--results", type=Path, nargs="*", default=shown, help="JSON files (default: cpu.json, gpu.json)"
    )
    reader.add_argument("--out", type=Path, default=OUT, help="where the SVGs go (default: docs/performance)")
    told = reader.parse_args()
    for path in told.results:
        content = json.loads(path.read_text())
        where = content["environment"].get("gpu") or f"{content['environment']['cores']} CPU cores"
        told.out.mkdir(parents=True, exist_ok=True)
        parts = content["parts"]
        drawn = {
            "peers": bars(parts, f"burnish and the baselines on {where}"),
            "sweep": curves(parts["sweep"], f"How sampling speed grows on {where}") if "sweep" in parts else None,
        }
        for name, picture in drawn.items():
            if picture:
                (told.out / f"{path.stem}-{name}.svg").write_text(picture)
                print(f"wrote {path.stem}-{name}.svg")


if __name__ == "__main__":
    main()
