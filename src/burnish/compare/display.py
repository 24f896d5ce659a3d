"""What people see while runs go on: one bar for all, a line for each run under way; plain lines where there is no terminal."""

from __future__ import annotations

import time

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from burnish.compare.job import Found
from burnish.compare.pool import Pool
from burnish.report.numbers import written


class Display:
    """Draws a pool. `total` counts the runs that are wanted, `before` those that were done already."""

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
        """Draw this pool from now on; what the one before has done counts as done."""
        self.before += self.pool.finished if self.pool else 0
        self.pool = pool
        return pool

    def found(self, row: Found) -> None:
        """A run came to its end."""
        self.failures += not row.done
        done = self.before + (self.pool.finished if self.pool else 0) + 1
        if row.done:
            first = f"{written(row.measure, row.curve[0].value)} to " if len(row.curve) > 1 else ""
            said = f"{first}{written(row.measure, row.value)}, {row.spent['steps']} steps, {row.spent['seconds']:.0f} s"
        else:
            said = f"failed: {row.reason}"
        text = f"{done:>{len(str(self.total))}}/{self.total}  {row.label}, {row.task}, seed {row.seed}: {said}"
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
        under_way = sum(going.used for going in pool.going.values())
        bar = ProgressBar(
            total=max(1, self.total),
            completed=done + under_way,
            style="grey35",
            complete_style="cyan",
            finished_style="cyan",
        )
        grid.add_row(Text(f" {self.title}", "bold"), bar, Text(f"{done} of {self.total} runs{self._left(under_way)} "))
        parts: list[RenderableType] = [grid, self._rows(pool)]
        if pool.stopping:
            parts.append(Text(f" {pool.why}: every run finishes its step and saves ...", "yellow"))
        elif self.failures:
            parts.append(Text(f" {self.failures} failed; the reasons come in the table", "yellow"))
        return Group(*parts)

    def _rows(self, pool: Pool) -> Table:
        grid = Table.grid(padding=(0, 2, 0, 0))
        room = max(3, self.console.height - 6)
        for going in list(pool.going.values())[:room]:
            bar = ProgressBar(total=1.0, completed=going.used, width=24, style="grey35", complete_style="green")
            value = "" if going.value is None else f"held-out {100 * going.value:.0f}%"
            where = f"step {going.steps}" if going.steps else "starting"
            grid.add_row(
                Text(f"   {going.job.label}", "cyan"), Text(f"seed {going.job.seed}", "dim"), bar,
                Text(f"{going.used:4.0%}"), Text(where, "dim"), Text(value),
            )  # fmt: skip
        return grid

    def _left(self, under_way: float) -> str:
        """How long it will take, from what was done since the beginning; nothing before there is something to go by."""
        assert self.pool is not None
        done, passed = self.before - self.earlier + self.pool.finished + under_way, time.monotonic() - self.began
        if done < 0.2 or passed < 10:
            return ""
        seconds = (self.total - self.earlier - done) * passed / done
        return f", about {seconds / 60:.0f} min left" if seconds >= 90 else f", about {seconds:.0f} s left"
