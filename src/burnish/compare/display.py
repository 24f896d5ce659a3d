"""Progress of a comparison in the terminal: a bar for all runs and one for each running job; else plain lines."""

from __future__ import annotations

import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from burnish.compare.job import RunResult
from burnish.compare.pool import Pool
from burnish.evals.better import written


class Display:
    """Live display of a pool. `total` is the number of runs, `before` the number that had finished earlier."""

    def __init__(self, console: Console, title: str, total: int, before: int = 0) -> None:
        self.console, self.title, self.total, self.before = console, title, total, before
        self.pool: Pool | None = None
        self.began, self.failures, self.earlier = time.monotonic(), 0, before
        self.live = Live(console=console, get_renderable=self.draw, refresh_per_second=4, transient=True)

    def __enter__(self) -> Display:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def follow(self, pool: Pool) -> Pool:
        """Display this pool from now on; the finished runs of the previous pool are added to `before`."""
        self.before += self.pool.finished if self.pool else 0
        self.pool = pool
        return pool

    def on_result(self, row: RunResult) -> None:
        """Count a finished or failed run, and print it."""
        self.failures += not row.done
        done = self.before + (self.pool.finished if self.pool else 0) + 1
        if row.done:
            first = f"{written(row.measure, row.curve[0].value)} to " if len(row.curve) > 1 else ""
            last = f"{written(row.measure, row.value)}, {row.spent['steps']} steps, {row.spent['seconds']:.0f} s"
            outcome = f"{first}{last}"
        else:
            outcome = f"failed: {row.reason}"
        text = f"{done:>{len(str(self.total))}}/{self.total}  {row.label}, {row.task}, seed {row.seed}: {outcome}"
        if not self.console.is_terminal or not row.done:
            self.console.print(
                text, style=None if row.done else "yellow", markup=False, highlight=False, soft_wrap=True
            )

    def draw(self) -> RenderableType:
        pool = self.pool
        if pool is None:
            return Text(f" {self.title}", "bold")
        done = self.before + pool.finished
        grid = Table.grid(padding=(0, 1), expand=True)
        for ratio in (None, 1, None):
            grid.add_column(ratio=ratio, no_wrap=True)
        partial = sum(running.used for running in pool.running.values())
        bar = ProgressBar(
            total=max(1, self.total),
            completed=done + partial,
            style="grey35",
            complete_style="cyan",
            finished_style="cyan",
        )
        grid.add_row(Text(f" {self.title}", "bold"), bar, Text(f"{done} of {self.total} runs{self._left(partial)} "))
        parts: list[RenderableType] = [grid, self._rows(pool)]
        if pool.stopping:
            parts.append(Text(f" {pool.why}: every run finishes its step and saves ...", "yellow"))
        elif self.failures:
            parts.append(Text(f" {self.failures} failed; the table will have the reasons", "yellow"))
        return Group(*parts)

    def _rows(self, pool: Pool) -> Table:
        grid = Table.grid(padding=(0, 2, 0, 0))
        most = max(3, self.console.height - 6)
        for running in list(pool.running.values())[:most]:
            bar = ProgressBar(total=1.0, completed=running.used, width=24, style="grey35", complete_style="green")
            grid.add_row(
                Text(f"   {running.job.label}", "cyan"),
                Text(f"seed {running.job.seed}", "dim"),
                bar,
                Text(f"{running.used:4.0%}"),
                Text(f"step {running.steps}" if running.steps else "starting", "dim"),
                Text("" if running.value is None else f"held-out {100 * running.value:.0f}%"),
            )
        return grid

    def _left(self, partial: float) -> str:
        """Estimated time left, from the pace so far; empty while there is too little to estimate it."""
        assert self.pool is not None
        done, passed = self.before - self.earlier + self.pool.finished + partial, time.monotonic() - self.began
        if done < 0.2 or passed < 10:
            return ""
        seconds = (self.total - self.earlier - done) * passed / done
        return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"
