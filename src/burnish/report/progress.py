"""What people see of a run while it runs: a drawn screen on a terminal, plain lines everywhere else."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from burnish.loop import Report
from burnish.report import ending, numbers
from burnish.report.health import Health
from burnish.report.plot import Point, plot
from burnish.run.config import Options
from burnish.run.heldout import Outcome
from burnish.run.train import Observer, Result, Run, limits
from burnish.step import Settings

LINE_SECONDS = 3.0  # at least so long between two plain lines, unless one has news
PLOT_HEIGHT = 4


class Watch(Observer):
    """What both ways of telling need: the run so far."""

    run: Run

    def __init__(self, console: Console) -> None:
        self.console = console
        self.history: list[numbers.Metrics] = []
        self.trained: list[Point] = []
        self.heldout: list[Point] = []
        self.heldout_name, self.seconds, self.done = "accuracy", 0.0, 0
        self.began: float | None = None
        self.doing = ""

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Whatever was drawn stays; nothing more is."""

    def started(self, run: Run) -> None:
        self.run, self.done = run, run.start
        self.health = Health(limits(run))
        options = run.config.options
        stored = run.folder.read_json("evaluation.json")
        if stored and stored.get("before"):
            self._measured(Outcome.from_json(stored["before"]))
        for metrics in run.folder.metrics():
            self._remember(metrics)
        if options.eval_tasks and not run.start:
            self.doing = f"measuring on {options.eval_tasks} held-out tasks, before training"
        else:
            self.begin()

    def evaluated(self, when: str, outcome: Outcome) -> None:
        if when == "before":
            self._measured(outcome)
            self.begin()
        else:
            self.doing = "saving the model"

    def begin(self) -> None:
        self.began, self.doing = time.monotonic(), "the first step" if self.done < self.steps else "finishing"

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        self.done, self.seconds, self.doing = report.clock.step + 1, seconds, ""
        self._remember({**report.metrics, **heldout})
        if self.done == self.steps and self.run.config.options.eval_tasks:
            self.doing = f"measuring on {self.run.config.options.eval_tasks} held-out tasks, after training"

    def ordered(self, action: str) -> None:
        self.doing = {
            "pause": "paused from outside: burnish runs resume, the dashboard or Ctrl-C ends the pause",
            "stop": "stopping, as ordered from outside: this step is saved first",
        }.get(action, "")

    def stopping(self) -> None:
        self.doing = "stopping: this step is finished and saved first (Ctrl-C again: stop now, lose this step)"

    @property
    def steps(self) -> int:
        return self.run.config.options.steps

    def left(self) -> float | None:
        """Seconds until the last step, by the pace of this run so far."""
        fresh = self.done - self.run.start
        if self.began is None or fresh < 1:
            return None
        return (time.monotonic() - self.began) / fresh * (self.steps - self.done)

    def worries(self) -> dict[str, str]:
        return self.health.worries()

    def _measured(self, before: Outcome) -> None:
        self.heldout_name = before.name.removeprefix("held-out ")
        self.heldout.append((0, before.value.mean))

    def _remember(self, metrics: numbers.Metrics) -> None:
        metrics = {name: value for name, value in metrics.items() if value is not None}
        self.history.append(metrics)
        self.health.add(metrics)
        name, measured = numbers.trained_series(metrics), numbers.heldout_of(metrics)
        if name:
            self.trained.append((metrics["step"] + 1, metrics[name]))
        if measured:
            self.heldout_name = measured[0]
            self.heldout.append((metrics["step"] + 1, measured[1]))


class Lines(Watch):
    """Plain lines, for files, pipes and --quiet: no control codes, no drawing."""

    def preparing(self, what: str) -> None:
        self.line(f"{what} ...")

    def started(self, run: Run) -> None:
        super().started(run)
        self.said: set[str] = set()
        self.last = 0.0
        for name, text in derived(run):
            self.line(f"{name + ':':<7} {text}")

    def evaluated(self, when: str, outcome: Outcome) -> None:
        super().evaluated(when, outcome)
        if when == "before":
            self.line(f"before: held-out {outcome.name.removeprefix('held-out ')} {ending.estimate(outcome)}")

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        super().stepped(report, heldout, seconds)
        first_or_last = self.done == self.run.start + 1 or self.done == self.steps
        if first_or_last or heldout or time.monotonic() - self.last > LINE_SECONDS:
            self.last = time.monotonic()
            said = [f"{label} {text}" for label, text in numbers.shown(report.metrics, seconds)]
            said += [f"held-out {name} {numbers.written(name, value)}" for name, value in _measured(heldout)]
            left = self.left()
            said += [f"{_clock(left)} left"] if left and self.done < self.steps else []
            self.line(f"step {self.done}/{self.steps}: {', '.join(said)}")
        for kind, worry in self.worries().items():
            if kind not in self.said:
                self.said.add(kind)
                self.line(f"note: {worry}")

    def ordered(self, action: str) -> None:
        self.line(f"ordered from outside: {action}")

    def warned(self, said: str) -> None:
        self.line(f"warning: {said}")

    def stopping(self) -> None:
        os.write(2, b"stopping after this step ...\n")  # print may be in the middle of a line when a signal comes

    def finished(self, result: Result) -> None:
        if result.stopped:
            self.line(f"stopped after step {self.done} of {self.steps}; saved in {result.folder}")
        for sentence in ending.verdict(result, self.run.config.options.eval_tasks):
            self.line(sentence)
        for name, text in ending.places(result):
            self.line(f"{name + ':':<7} {text}")
        for command, _ in ending.next_steps(self.run, result):
            self.line(f"next:   {command}")

    def line(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


class Screen(Watch):
    """The live display."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self.ready, self.over, self.doing = False, False, "loading"
        self.warnings: deque[str] = deque(maxlen=3)
        self.keys = ExitStack()
        self.spinner = Spinner("dots", style="cyan")
        self.live = Live(console=console, get_renderable=self.draw, refresh_per_second=8)

    def __enter__(self) -> Screen:
        self.keys.enter_context(_no_echo())
        self.live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.over, self.doing = True, ""
        self.live.stop()
        self.keys.close()

    def preparing(self, what: str) -> None:
        self.doing = what

    def started(self, run: Run) -> None:
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
        for i, sentence in enumerate(ending.verdict(result, self.run.config.options.eval_tasks)):
            out(Text(sentence[0].upper() + sentence[1:], style="bold green" if i == 0 else "yellow"))
        table = ending.answers(result.before, result.after)
        if table:
            out(table)
        grid = _grid()
        for name, text in ending.places(result):
            grid.add_row(Text(f"{name:<5}", "dim"), Text(text))
        out(grid)
        steps = ending.next_steps(self.run, result)
        longest = max((len(command) for command, _ in steps), default=0)
        for i, (command, what) in enumerate(steps):
            words = ("next   " if i == 0 else "       ", "dim"), (f"{command:<{longest}}", "cyan"), (f"  {what}", "dim")
            out(Text.assemble(*words), soft_wrap=True)

    def draw(self) -> RenderableType:
        if not self.ready:
            return Group() if self.over else self._status()
        parts: list[RenderableType] = [self._header(), self._bar()]
        if self.history:
            parts += [self._numbers(), self._plots()]
            parts += [Padding(Text(f"! {worry}", style="yellow"), (0, 1)) for worry in self.worries().values()]
        parts += [Padding(Text(f"! {said}", style="yellow"), (0, 1)) for said in self.warnings]
        if self.doing:
            parts.append(self._status())
        return Group(*parts)

    def _status(self) -> RenderableType:
        self.spinner.update(text=Text(f" {self.doing}", style="dim"))
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
        found = numbers.shown(self.history[-1], self.seconds)
        if self.heldout:
            found.insert(1, ("held-out", numbers.written(self.heldout_name, self.heldout[-1][1])))
        grid = Table.grid(padding=(0, 3))
        grid.add_row(*(Text.assemble((label + " ", "dim"), (text, "bold")) for label, text in found))
        return Padding(grid, (1, 1))

    def _plots(self) -> RenderableType:
        grid = Table.grid(padding=(0, 1), expand=True)
        name = next((n for n in map(numbers.trained_series, reversed(self.history)) if n), "")
        drawn = [(name, self.trained, "cyan"), (f"held-out {self.heldout_name}", self.heldout, "green")]
        drawn = [one for one in drawn if one[1]]
        width = max(10, (self.console.width - 4) // max(1, len(drawn)) - 10)
        for _ in drawn:
            grid.add_column(ratio=1)
        grid.add_row(*(_chart(title, points, self.steps, width, colour) for title, points, colour in drawn))
        return Padding(grid, (0, 1))


def _pace(settings: Settings) -> str:
    """What is sampled when, where it is not all in its own step."""
    ahead = f"sampled {settings.lag} step{'s' if settings.lag > 1 else ''} ahead of learning" if settings.lag else ""
    chunk = f"at most {settings.chunk} tokens of a reply a step, then on with newer weights" if settings.chunk else ""
    return "; ".join(filter(None, (ahead, chunk)))


def derived(run: Run) -> list[tuple[str, str]]:
    """What burnish made of the options: the header of every run."""
    options, settings = run.config.options, run.settings
    about = run.about
    part = f" ({_count(about.moving)} trained)" if 0 < about.moving < about.weights else ""
    precision = "fp32" if about.device == "cpu" else "bf16 autocast over fp32 weights"
    n = run.config.arguments.get("n")
    batch = f"{settings.prompts} prompts x {n} samples" if isinstance(n, int) else f"{settings.prompts} tasks"
    model = f"{options.model}, {_count(about.weights)} weights{part}, {about.device}, {precision}"
    rate = (
        f"{settings.lr:g} {settings.lr_schedule}"
        if any(phase.learn.terms for phase in run.method.phases)
        else "nothing is trained"
    )
    engines = {
        "process": "burnish in another process, on a copy of the weights that is proved at every publish",
        "vllm": "vLLM, on a copy of the weights that is proved at every publish; it takes some seconds to start",
    }
    return [
        ("model", model),
        *([("engine", engines[options.engine])] if options.engine in engines else []),
        *([("on", _placed(options))] if options.on == "ray" else []),
        ("task", f"{options.task}: {run.source.summary}"),
        (
            "batch",
            f"{batch}, replies up to {settings.max_new_tokens} tokens, micro-batches of {settings.token_budget:,} tokens",
        ),
        *([("pace", pace)] if (pace := _pace(settings)) else []),
        ("lr", f"{rate}, {options.steps} steps" + (f", going on after step {run.start}" if run.start else "")),
        ("run", str(run.folder.path)),
    ]


def _placed(options: Options) -> str:
    """Who works for a run on Ray."""
    where = f"the Ray at {options.ray_address}" if options.ray_address else "a Ray of its own, on this machine"
    counts = [(options.samplers, "sampler"), (options.graders, "grader"), (1, "trainer")]
    who = ", ".join(f"{n} {word}{'s' if n > 1 else ''}" for n, word in counts)
    return f"{where}: {who}, {options.spares} spare of each; {options.order} order, lag {options.lag}, units of {options.unit} tasks"


def _chart(title: str, points: list[Point], steps: int, width: int, colour: str) -> RenderableType:
    values = [y for _, y in points]
    low, high = min(values), max(values)
    if high - low < 0.2:  # what is almost flat should look flat
        share = low >= 0 and high <= 1  # rewards and accuracies stay between 0 and 1
        low, high = (max(0.0, low - 0.1), min(1.0, high + 0.1)) if share else (low - 0.1, high + 0.1)
    lines = plot(points, end=steps, width=width, height=PLOT_HEIGHT, low=low, high=high)
    marks = [numbers.written(title, high), *[""] * (PLOT_HEIGHT - 2), numbers.written(title, low)]
    rows = [Text.assemble((f"{mark:>6} ", "dim"), (line, colour)) for mark, line in zip(marks, lines, strict=True)]
    return Group(Text(f"{'':>6} {title}", "dim"), *rows)


@contextmanager
def _no_echo() -> Iterator[None]:
    """Inside, the terminal does not print ^C over the drawing."""
    try:
        import termios
    except ImportError:  # not on this system
        yield
        return
    if not sys.stdin.isatty():
        yield
        return
    place = sys.stdin.fileno()
    before = termios.tcgetattr(place)
    silent = [*before]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(place, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(place, termios.TCSANOW, before)


def _measured(heldout: dict[str, float]) -> list[tuple[str, float]]:
    found = numbers.heldout_of(heldout)
    return [found] if found else []


def _grid() -> Table:
    return Table.grid(padding=(0, 2, 0, 0))


def _count(n: int) -> str:
    return f"{n / 1e9:.2f}B" if n >= 1e9 else f"{n / 1e6:.1f}M" if n >= 1e6 else f"{n / 1e3:.0f}k"


def _clock(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    return f"{hours}:{rest // 60:02d}:{rest % 60:02d}" if hours else f"{rest // 60}:{rest % 60:02d}"
