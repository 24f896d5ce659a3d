"""Fit the simulator to published synchronous steps, predict the asynchronous ones, and scale to 4,096 GPUs.

python benchmarks/simulator.py     a few minutes; writes results/simulator.json and docs/simulator.svg
"""

from __future__ import annotations

import json
from pathlib import Path

from svg import OTHERS, OURS, Canvas, Log

from burnish.run.step_time import GPUS
from burnish.simulator.calibrate import Calibration, fit
from burnish.simulator.lengths import Lengths
from burnish.simulator.published import Published, published
from burnish.simulator.scaling import Point, scaling
from burnish.simulator.shapes import Costs
from burnish.simulator.simulate import Job

HERE = Path(__file__).parent
FAST = ("NeMo RL 0.4, H100", "NeMo RL 0.6, H100")  # fitted together: five models, two releases
COLOURS = {0: OTHERS, 1: OURS, 4: "#e8590c"}
NAMES = {0: "synchronous", 1: "one step behind", 4: "up to four steps behind"}


def judged(models: dict[str, Costs], rows: list[Published], found: Calibration) -> list[dict[str, object]]:
    """Each row beside its prediction."""
    told: list[dict[str, object]] = []
    for row in rows:
        outcome = row.simulated(models[row.model], found.rates(row))
        told.append(
            {
                "group": row.group,
                "model": row.model,
                "gpus": row.gpus,
                "samplers": row.samplers,
                "lag": row.lag,
                "fitted": not row.lag,
                "published_s": row.seconds,
                "predicted_s": round(outcome.step_seconds, 1),
                "error": round(outcome.step_seconds / row.seconds - 1, 3),
                "sampler_idle": round(outcome.sampler_idle, 3),
                "trainer_idle": round(outcome.trainer_idle, 3),
                "staleness": round(outcome.staleness, 2),
            }
        )
        print(told[-1], flush=True)
    return told


def draw(points: list[Point], title: str) -> str:
    """Three panels against the number of GPUs: tokens a second, idle share, staleness."""
    canvas = Canvas(860, 300, title)
    canvas.text(0, 16, title, kind="strong")
    lags = sorted({point.lag for point in points})
    for number, lag in enumerate(lags):
        canvas.curve([(50 + 200 * number, 36), (75 + 200 * number, 36)], COLOURS[lag])
        canvas.text(84 + 200 * number, 40, NAMES[lag], kind="faint")
    rate = Log(min(p.tokens_per_second for p in points), max(p.tokens_per_second for p in points), 240, 60)
    stalest = max(1.0, *(p.staleness for p in points))
    panels = (
        ("tokens a second", lambda p: rate(p.tokens_per_second), [(rate(t), f"{t:,.0f}") for t in rate.ticks()]),
        ("idle share of the GPUs", lambda p: 240 - 180 * p.idle, [(240 - 180 * t, f"{t:.0%}") for t in (0, 0.5, 1)]),
        (
            "mean staleness, versions",
            lambda p: 240 - 180 * p.staleness / stalest,
            [(240 - 180 * t / stalest, f"{t}") for t in range(int(stalest) + 1)],
        ),
    )
    for panel, (label, height, ticks) in enumerate(panels):
        left = 70 + 275 * panel
        along = Log(min(p.gpus for p in points), max(p.gpus for p in points), left + 8, left + 205)
        for y, words in ticks:
            canvas.line(left, y, left + 213, y)
            canvas.text(left - 6, y + 4, words, anchor="end", kind="faint")
        for tick in (1, 8, 64, 512, 4096):
            canvas.text(along(tick), 258, f"{tick:,}", anchor="middle", kind="faint")
        canvas.text(left + 106, 282, f"{label}, by GPUs", anchor="middle")
        for lag in lags:
            canvas.curve([(along(p.gpus), height(p)) for p in points if p.lag == lag], COLOURS[lag])
    return str(canvas)


def main() -> None:
    models, rows = published()
    first = [row for row in rows if row.group in FAST]
    second = [row for row in rows if row.group not in FAST]
    found, other = fit(models, first), fit(models, second, hold=("fixed", "slower"))
    row = next(row for row in first if row.system == "NeMo RL 0.6" and row.model == "Qwen3-30B-A3B")
    job = Job(models[row.model], GPUS["h100"], 8192, Lengths(3000, 16384, 0.8), updates=4)
    points = scaling(job, found.rates(row))
    told = {
        "values": [{name: float(f"{value:.4g}") for name, value in one.values.items()} for one in (found, other)],
        "rows": judged(models, first, found) + judged(models, second, other),
        "scaling": [point.told() for point in points],
    }
    (HERE / "results" / "simulator.json").write_text(json.dumps(told, indent=1) + "\n")
    title = "Qwen3-30B-A3B, 8,192 replies a step of 3,000 tokens (at most 16,384), simulated on H100s"
    (HERE.parent / "docs" / "simulator.svg").write_text(draw(points, title))


if __name__ == "__main__":
    main()
