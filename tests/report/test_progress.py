"""The display of a run: the time that is left, and what it keeps of the steps."""

from __future__ import annotations

import io
import time
import tracemalloc
from pathlib import Path

import pytest
from rich.console import Console

from burnish.config.options import configure
from burnish.core.loop import Report
from burnish.core.types import Clock
from burnish.methods.table import find
from burnish.report.progress import Progress, ProgressScreen
from burnish.run.train import prepare


def test_what_is_left_follows_from_the_pace_of_this_run(small_model: Path, tmp_path: Path) -> None:
    given = {"model": str(small_model), "steps": 10, "eval_tasks": 0, "device": "cpu", "out": str(tmp_path / "run")}
    watch = Progress(Console(file=io.StringIO()))
    run = prepare(find("grpo"), configure(find("grpo"), "grpo", given))
    watch.started(run)
    assert watch.left() is None  # no step is done
    run.start, watch.done, watch.began = 2, 6, time.monotonic() - 100.0
    assert watch.left() == pytest.approx(100.0 / 4 * 4, rel=0.05)
    watch.done = 9
    assert watch.left() == pytest.approx(100.0 / 7, rel=0.05)


def test_the_display_does_not_grow_with_the_steps(small_model: Path, tmp_path: Path) -> None:
    """20,000 steps of 40 numbers: what is kept grows with the first of them only, and the curve still has its ends."""
    given = {"model": str(small_model), "steps": 20_000, "eval_tasks": 0, "device": "cpu", "out": str(tmp_path / "run")}
    screen = ProgressScreen(Console(file=io.StringIO(), width=100))
    screen.started(prepare(find("grpo"), configure(find("grpo"), "grpo", given)))
    tracemalloc.start()
    held = []
    for step in range(20_000):
        metrics = {"step": step + 1, "reward": step / 20_000} | {f"metric {i}": step + i / 7 for i in range(40)}
        screen.stepped(Report(Clock(step, 20_000), metrics, {}), {}, 0.1)
        held += [tracemalloc.get_traced_memory()[0]] if step + 1 in (5_000, 20_000) else []
    tracemalloc.stop()
    assert held[1] - held[0] < 400_000, "with every step's metrics it is 50 MB"
    assert screen.trained[0] == (1, 0.0) and screen.trained[-1][0] > 19_990
    screen.console.print(screen.draw())
    assert "reward 1.00" in " ".join(screen.console.file.getvalue().split())  # type: ignore[attr-defined]
