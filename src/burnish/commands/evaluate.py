"""`burnish eval MODEL`: how good is it on a task it has not trained on?"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from burnish.commands.flags import read

if TYPE_CHECKING:
    from burnish.run.evaluate import Evaluation, Interval

SAMPLES = 4


@dataclass(frozen=True)
class EvalOptions:
    """burnish eval MODEL --task TASK: pass@k and majority@k on held-out tasks, with 95% intervals.

    MODEL is a name (burnish models) or a directory, for example runs/DIR/model."""

    task: str = "sort"
    """A built-in task (burnish tasks), gym:NAME, or a dataset."""
    tasks: int = 200
    """Held-out tasks that are asked."""
    k: int = 16
    """Replies sampled for each task."""
    temperature: float = 1.0
    """The temperature of sampling; 0 is greedy (then --k 1 is enough)."""
    seed: int = 0
    """The same seed samples the same replies."""
    max_new_tokens: int = 64
    """The longest reply, in tokens."""
    reward: str | None = None
    """A reward function path/to/file.py:function, in place of the task's verifier."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    json: bool = False
    """Print JSON only."""


def main(words: list[str]) -> int:
    asked = read(EvalOptions, "eval", words, plain=1)
    if asked is None:
        return 0
    (models, options) = asked
    if not models:
        raise ValueError("say which model to evaluate: burnish eval runs/DIR/model --task sort")
    for name in ("tasks", "k", "max_new_tokens"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name.replace('_', '-')} is {getattr(options, name)}; it must be at least 1")
    console = Console(highlight=False)
    found = _evaluate(models[0], options, console)
    ks = [k for k in (2**i for i in range(options.k.bit_length())) if k < options.k] + [options.k]
    if options.json:
        print(json.dumps(_as_json(models[0], options, found, ks), indent=1))
    else:
        _print(models[0], options, found, ks, console)
    return 0


def _evaluate(model: str, options: EvalOptions, console: Console) -> Evaluation:
    from burnish.commands.member import alone
    from burnish.run.evaluate import can_evaluate, evaluate
    from burnish.step import Settings
    from burnish.tasks.resolve import resolve_task

    source = resolve_task(options.task, options.reward)
    if not can_evaluate(source):
        raise ValueError(
            f"replies to task {options.task!r} cannot be judged: it has no answers to check; give a --reward function"
        )
    settings = Settings(max_new_tokens=options.max_new_tokens)
    cast = alone(model, settings, options.device)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=options.json or not console.is_terminal
    ) as progress:
        size = source.size("heldout")
        bar = progress.add_task(
            f"sampling {options.k} each", total=options.tasks if size is None else min(options.tasks, size)
        )
        return evaluate(
            cast, source, settings, tasks=options.tasks, k=options.k, seed=options.seed, temperature=options.temperature,
            heard=lambda answered: progress.update(bar, completed=answered),
        )  # fmt: skip


def _as_json(model: str, options: EvalOptions, found: Evaluation, ks: list[int]) -> dict[str, Any]:
    def plain(interval: Interval) -> dict[str, float]:
        return {"mean": interval.mean, "low": interval.low, "high": interval.high}

    return {
        "model": model, "task": options.task, "tasks": len(found.correct), "k": options.k,
        "temperature": options.temperature, "seed": options.seed,
        "pass": {str(k): plain(found.pass_at(k)) for k in ks},
        "majority": {str(k): plain(found.majority_at(k)) for k in ks},
        "reward": plain(found.reward()), "length": found.length,
    }  # fmt: skip


def _print(model: str, options: EvalOptions, found: Evaluation, ks: list[int], console: Console) -> None:
    from burnish.report.ending import marked, one_line

    console.print(Text.assemble((model, "bold cyan"), f" on {options.task}: {len(found.correct)} held-out tasks, {options.k} "
                                f"replies each at temperature {options.temperature:g}, {found.length:.1f} tokens on average"))  # fmt: skip
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    for column in ("k", "pass@k", "95%", "majority@k", "95%"):
        table.add_column(column, justify="right")
    for k in ks:
        one, many = found.pass_at(k), found.majority_at(k)
        table.add_row(str(k), f"[bold]{one.mean:.1%}[/]", _range(one), f"[bold]{many.mean:.1%}[/]", _range(many))
    console.print(table)
    samples = Table(title="The first of them", title_justify="left", title_style="bold", expand=True)
    samples.add_column("prompt", ratio=1)
    samples.add_column("first reply", ratio=1)
    for shown in found.shown[:SAMPLES]:
        samples.add_row(one_line(shown.prompt), marked(shown))
    console.print(samples)


def _range(interval: Interval) -> str:
    return f"[dim]{interval.low:.1%} to {interval.high:.1%}[/]"
