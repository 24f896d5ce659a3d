"""docs/real-runs.svg from results/real_runs.json: the training reward of the RL runs, means of their seeds.

python benchmarks/real_figure.py
"""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from svg import OURS, Canvas

HERE = Path(__file__).parent
COLOURS = {"grpo": OURS, "dr_grpo": "#e8590c", "rloo": "#7048e8", "qwen-gsm8k": OURS, "qwen-code": "#e8590c"}
BIN = 10  # steps in one point


def points(runs: list[dict[str, Any]], size: int) -> list[tuple[float, float]]:
    """(step, mean reward of `size` steps and all runs)."""
    rewards = [[row["reward"] for row in run["curve"] if "reward" in row] for run in runs]
    length = min(map(len, rewards))
    return [
        (first + size / 2, statistics.mean(x for its in rewards for x in its[first : first + size]))
        for first in range(0, length - size + 1, size)
    ]


def panel(
    canvas: Canvas, left: float, title: str, lines: dict[str, list[tuple[float, float]]], steps: int, top: float
) -> None:
    width, height, base = 300.0, 180.0, 250.0
    canvas.text(left, 40, title, kind="strong")
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = base - share * height
        canvas.line(left, y, left + width, y)
        canvas.text(left - 6, y + 4, f"{100 * share * top:.3g}%", anchor="end", kind="faint")
    for step in range(0, steps + 1, steps // 4):
        canvas.text(left + width * step / steps, base + 18, str(step), anchor="middle", kind="faint")
    canvas.text(left + width / 2, base + 36, "step", anchor="middle", kind="faint")
    for i, (name, line) in enumerate(lines.items()):
        canvas.curve([(left + width * x / steps, base - height * y / top) for x, y in line], COLOURS[name])
        canvas.bar(left + 8, 56 + 16 * i, 10, 10, COLOURS[name])
        canvas.text(left + 24, 65 + 16 * i, name)


def main() -> None:
    found = json.loads((HERE / "results" / "real_runs.json").read_text())
    canvas = Canvas(760, 300, "Training reward of RL runs")
    canvas.text(20, 18, "Share of right replies among those sampled for training (temperature 1)", kind="faint")
    small = {
        method: points([found[name] for seed in range(3) if (name := f"long-{method}-{seed}") in found], BIN)
        for method in ("grpo", "dr_grpo", "rloo")
    }
    panel(canvas, 60, "SmolLM2-135M on GSM8K, after SFT", small, 160, 0.08)
    large = {name: points([found[f"{name}-0"]], 2) for name in ("qwen-gsm8k", "qwen-code")}
    panel(canvas, 430, "Qwen2.5-Coder-1.5B, LoRA", large, 20, 1.0)
    (HERE.parent / "docs" / "real-runs.svg").write_text(str(canvas))


if __name__ == "__main__":
    main()
