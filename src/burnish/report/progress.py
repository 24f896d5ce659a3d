"""Progress of a run in the terminal: a live display, or plain lines for files, pipes and --quiet."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from burnish.core.loop import Report
from burnish.evals.better import label, written
from burnish.evals.heldout import Outcome
from burnish.report import final_message, numbers
from burnish.report.header import derived
from burnish.report.measured import cut, measured
from burnish.report.plot import Point, plot
from burnish.run.observed import ObservedRun
from burnish.run.observers import Observer
from burnish.run.train import Result, limits
from burnish.store.health import Health

LINE_SECONDS = 3.0  # shortest time between two plain lines of steps without a held-out measurement
PLOT_HEIGHT = 4
MOST_POINTS = 4000  # of the curve of training, which is drawn eight times a second; beyond, every second is dropped


class Progress(Observer):
    """The state that both displays need: metrics, held-out measurements, pace and health of the run so far."""

    run: ObservedRun

    def __init__(self, console: Console) -> None:
        self.console = console
        self.latest: numbers.Metrics = {}
        self.trained, self.heldout, self.trained_name = list[Point](), list[Point](), ""
        self.heldout_name, self.seconds, self.done = "accuracy", 0.0, 0
        self.began: float | None = None
        self.activity = ""

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the display; what it has printed stays."""

    def started(self, run: ObservedRun) -> None:
        self.run, self.done = run, run.start
        self.health = Health(limits(run))
        options = run.config.options
        stored = run.folder.read_json("evaluation.json")
        if stored and stored.get("before"):
            self._measured(Outcome.from_json(stored["before"]))
        for metrics in run.folder.metrics():
            self._remember(metrics)
        if options.eval_tasks and not run.start:
            self.activity = f"measuring on {run.held_out} held-out tasks, before training"
        else:
            self.begin()

    def evaluated(self, when: str, outcome: Outcome) -> None:
        if when == "before":
            self._measured(outcome)
            self.begin()
        else:
            self.activity = "saving the model"

    def begin(self) -> None:
        self.began, self.activity = time.monotonic(), "the first step" if self.done < self.steps else "finishing"

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        self.done, self.seconds, self.activity = report.clock.step + 1, seconds, ""
        self._remember({**report.metrics, **heldout})
        if (self.done == self.steps or self.run.best.ends()) and self.run.config.options.eval_tasks:
            self.activity = f"measuring on {self.run.held_out} held-out tasks, after training"

    def ordered(self, action: str) -> None:
        self.activity = {
            "pause": "paused by an order: burnish runs resume, the dashboard or Ctrl-C ends the pause",
            "stop": "stopping by an order: this step is saved first",
        }.get(action, "")

    def stopping(self) -> None:
        self.activity = "stopping: this step is finished and saved first (Ctrl-C again: stop now, lose this step)"

    @property
    def longest(self) -> int:
        """The longest reply, in tokens."""
        return self.run.settings.max_new_tokens

    @property
    def steps(self) -> int:
        return self.run.config.options.steps

    def left(self) -> float | None:
        """Estimated seconds until the last step, by the mean time of the steps so far; None before the first."""
        steps = self.done - self.run.start
        if self.began is None or steps < 1:
            return None
        return (time.monotonic() - self.began) / steps * (self.steps - self.done)

    def worries(self) -> dict[str, str]:
        return self.health.worries()

    def _measured(self, before: Outcome) -> None:
        self.heldout_name = before.measure
        self.heldout.append((0, before.value.mean))

    def _remember(self, metrics: numbers.Metrics) -> None:
        metrics = {name: value for name, value in metrics.items() if value is not None}
        self.latest = metrics
        self.health.add(metrics)
        name, measured = numbers.trained_series(metrics), numbers.heldout_of(metrics)
        if name:
            points = self.trained[::2] if len(self.trained) > MOST_POINTS else self.trained
            self.trained_name, self.trained = name, [*points, (metrics["step"], metrics[name])]
        if measured:
            self.heldout_name = measured[0]
            self.heldout.append((metrics["step"], measured[1]))


class ProgressLines(Progress):
    """Plain lines without control codes, for files, pipes and --quiet."""

    def preparing(self, what: str) -> None:
        self.line(f"{what} ...")

    def started(self, run: ObservedRun) -> None:
        super().started(run)
        self.reported: set[str] = set()
        self.last = 0.0
        for name, text in derived(run):
            self.line(f"{name + ':':<7} {text}")

    def evaluated(self, when: str, outcome: Outcome) -> None:
        super().evaluated(when, outcome)
        if when == "before":
            self.line(f"before: {'; '.join([*measured(None, outcome), *cut(None, outcome, self.longest)])}")

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        super().stepped(report, heldout, seconds)
        first_or_last = self.done == self.run.start + 1 or self.done == self.steps
        if first_or_last or heldout or time.monotonic() - self.last > LINE_SECONDS:
            self.last = time.monotonic()
            texts = [f"{what} {text}" for what, text in numbers.shown(report.metrics, seconds)]
            texts += [f"held-out {label(name)}: {written(name, value)}" for name, value in _measured(heldout)]
            left = self.left()
            texts += [f"{_clock(left)} left"] if left and self.done < self.steps else []
            self.line(f"step {self.done}/{self.steps}: {', '.join(texts)}")
        for kind, worry in self.worries().items():
            if kind not in self.reported:
                self.reported.add(kind)
                self.line(f"note: {worry}")

    def ordered(self, action: str) -> None:
        self.line(f"order received: {action}")

    def warned(self, said: str) -> None:
        self.line(f"warning: {said}")

    def stopping(self) -> None:
        os.write(2, b"stopping after this step ...\n")  # a signal may interrupt print, which is not reentrant

    def finished(self, result: Result) -> None:
        if result.stopped:
            self.line(f"stopped after step {self.done} of {self.steps}; saved in {result.folder}")
        for sentence in final_message.verdict(result, self.run.held_out, self.longest):
            self.line(sentence)
        for name, text in final_message.places(result):
            self.line(f"{name + ':':<7} {text}")
        for command, _ in final_message.next_steps(self.run, result):
            self.line(f"next:   {command}")

    def line(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


class ProgressScreen(Progress):
    """The live display."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.ready, self.over, self.activity = False, False, "loading"
        self.warnings: deque[str] = deque(maxlen=3)
        self.keys = ExitStack()
        self.spinner = Spinner("dots", style="cyan")
        self.live = Live(console=console, get_renderable=self.draw, refresh_per_second=8)

    def __enter__(self) -> ProgressScreen:
        self.keys.enter_context(_no_echo())
        self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over, self.activity = True, ""
        self.live.stop()
        self.keys.close()

    def preparing(self, what: str) -> None:
        self.activity = what

    def started(self, run: ObservedRun) -> None:
        super().started(run)
        self.ready = True

    def warned(self, said: str) -> None:
        self.warnings.append(said)

    def finished(self, result: Result) -> None:
        self.__exit__(None, None, None)
        out = self.console.print
        out()
        if result.stopped:
            out(
                f"[bold yellow]Stopped after step {self.done} of {self.steps}.[/] Everything is saved.", highlight=False
            )
        for i, sentence in enumerate(final_message.verdict(result, self.run.held_out, self.longest)):
            out(Text(sentence[0].upper() + sentence[1:], style="bold green" if i == 0 else "yellow"))
        table = final_message.answers(result.before, result.after)
        if table:
            out(table)
        grid = _grid()
        for name, text in final_message.places(result):
            grid.add_row(Text(f"{name:<5}", "dim"), Text(text))
        out(grid)
        steps = final_message.next_steps(self.run, result)
        longest = max((len(command) for command, _ in steps), default=0)
        for i, (command, what) in enumerate(steps):
            words = ("next   " if i == 0 else "       ", "dim"), (f"{command:<{longest}}", "cyan"), (f"  {what}", "dim")
            out(Text.assemble(*words), soft_wrap=True)

    def draw(self) -> RenderableType:
        if not self.ready:
            return Group() if self.over else self._status()
        parts: list[RenderableType] = [self._header(), self._bar()]
        if self.latest:
            parts += [self._numbers(), self._plots()]
            parts += [Padding(Text(f"! {worry}", style="yellow"), (0, 1)) for worry in self.worries().values()]
        parts += [Padding(Text(f"! {warning}", style="yellow"), (0, 1)) for warning in self.warnings]
        if self.activity:
            parts.append(self._status())
        return Group(*parts)

    def _status(self) -> RenderableType:
        self.spinner.update(text=Text(f" {self.activity}", style="dim"))
        return Padding(self.spinner, (0, 1))

    def _header(self) -> Panel:
        grid = _grid()
        for name, text in derived(self.run):
            grid.add_row(Text(name, "dim"), Text(text))
        title = f"[bold]burnish[/] {self.run.config.method} on {self.run.config.options.task}"
        return Panel(grid, title=title, title_align="left", border_style="cyan")

    def _bar(self) -> RenderableType:
        grid = Table.grid(padding=(0, 1), expand=True)
        for ratio in (None, 1, None):
            grid.add_column(ratio=ratio, no_wrap=True)
        left = self.left()
        when = "" if left is None else "done" if self.done == self.steps else f"{_clock(left)} left"
        pace = f"{self.seconds:.2g} s a step   " if self.seconds else ""
        bar = ProgressBar(
            total=self.steps, completed=self.done, style="grey35", complete_style="cyan", finished_style="green"
        )
        grid.add_row(Text(f" step {self.done}/{self.steps}", "bold"), bar, f"{pace}{when} ")
        return grid

    def _numbers(self) -> RenderableType:
        shown = numbers.shown(self.latest, self.seconds)
        if self.heldout:
            shown.insert(1, ("held-out", written(self.heldout_name, self.heldout[-1][1])))
        texts = [Text.assemble((label + " ", "dim"), (text, "bold")) for label, text in shown]
        return Padding(Columns(texts, padding=(0, 3)), (1, 1))

    def _plots(self) -> RenderableType:
        grid = Table.grid(padding=(0, 1), expand=True)
        curves = [(self.trained_name, self.trained, "cyan"), (f"heldout/{self.heldout_name}", self.heldout, "green")]
        curves = [curve for curve in curves if curve[1]]
        width = max(10, (self.console.width - 4) // max(1, len(curves)) - 10)
        for _ in curves:
            grid.add_column(ratio=1)
        grid.add_row(*(_chart(name, points, self.steps, width, colour) for name, points, colour in curves))
        return Padding(grid, (0, 1))


def _chart(name: str, points: list[Point], steps: int, width: int, colour: str) -> RenderableType:
    values = [y for _, y in points]
    low, high = min(values), max(values)
    if high - low < 0.2:  # widen a small range, so that an almost constant curve looks flat
        share = low >= 0 and high <= 1  # rewards and accuracies stay between 0 and 1
        low, high = (max(0.0, low - 0.1), min(1.0, high + 0.1)) if share else (low - 0.1, high + 0.1)
    lines = plot(points, end=steps, width=width, height=PLOT_HEIGHT, low=low, high=high)
    marks = [written(name, high), *[""] * (PLOT_HEIGHT - 2), written(name, low)]
    rows = [Text.assemble((f"{mark:>6} ", "dim"), (line, colour)) for mark, line in zip(marks, lines, strict=True)]
    title = f"held-out {label(name.removeprefix('heldout/'))}" if name.startswith("heldout/") else name
    return Group(Text(f"{'':>6} {title}", "dim"), *rows)


@contextmanager
def _no_echo() -> Iterator[None]:
    """Disable terminal echo inside the block, so that ^C does not overwrite the display."""
    try:
        import termios
    except ImportError:  # not a POSIX system
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    silent = [*before]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(terminal, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


def _measured(heldout: dict[str, float]) -> list[tuple[str, float]]:
    measured = numbers.heldout_of(heldout)
    return [measured] if measured else []


def _grid() -> Table:
    return Table.grid(padding=(0, 2, 0, 0))


def _clock(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
