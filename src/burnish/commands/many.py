"""Shared code of `compare`, `sweep` and `ablate`: their flags, running the jobs, writing the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.compare.board import Board
    from burnish.compare.comparison import Results
    from burnish.compare.plan import Candidate, ComparisonPlan

WIDTH = 160  # columns of the output of --quiet in a terminal
SHARED = ("model", "prompts", "max_new_tokens", "lr", "lora", "reward", "device", "eval_measure")


@dataclass(frozen=True)
class ManyRuns:
    """Flags of the commands that train many runs."""

    task: str = "add"
    """A built-in task (burnish tasks), gym:NAME, or a dataset."""
    budget: str = "tokens=100k"
    """What each run may use: tokens=2M, samples=5000, seconds=90, flops=3e15 or steps=40."""
    seeds: int = 5
    """Runs of each candidate, with seeds 0, 1, ... Fewer than 4 cannot show a difference."""
    eval_tasks: int = 200
    """Held-out tasks of the final evaluation; evaluations during training use half of them."""
    replies: int = 8
    """Replies to each held-out task in the final evaluation, for pass@k."""
    points: int = 8
    """Number of evaluations during training."""
    threshold: float | None = None
    """The held-out score at which sample efficiency is measured; by default three quarters of the way to the best."""
    out: str | None = None
    """The folder of all runs; by default runs/COMMAND-TASK-METHODS."""
    workers: int | None = None
    """Runs in parallel; by default one per GPU, or one per core."""
    limit_seconds: float | None = None
    """Save and stop after this many seconds; the same command resumes."""
    keep_models: bool = False
    """Keep the trained model of every run."""
    model: str = "tiny"
    """A model's name (burnish models) or directory."""
    prompts: int | None = None
    """Tasks per step, for all candidates."""
    max_new_tokens: int | None = None
    """The longest reply, for all candidates."""
    eval_measure: str | None = None
    """The measure that ranks: auto, accuracy, sampled, reward or loss, as in burnish train."""
    lr: float | None = None
    """The learning rate, for all candidates; by default each method's own."""
    lora: int | None = None
    """Train LoRA adapters of this rank, for all candidates."""
    reward: str | None = None
    """A reward function path/to/file.py:function, instead of the verifier."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    quiet: bool = False
    """Plain lines only."""


def plan_of(candidates: tuple[Candidate, ...], kind: str, options: ManyRuns, name: str = "") -> ComparisonPlan:
    """Build and check the plan of all runs before the first one starts. name: of its folder, if not the first one's."""
    from burnish.compare.budget import parse
    from burnish.compare.plan import ComparisonPlan, default_folder

    names = [one.label for one in candidates] if kind == "compare" else [name or candidates[0].label]
    out = Path(options.out) if options.out else default_folder(kind, options.task, names)
    plan = ComparisonPlan(
        candidates=candidates,
        task=options.task,
        seeds=options.seeds,
        budget=parse(options.budget),
        out=out,
        shared=shared_flags(options),
        tasks=options.eval_tasks,
        replies=options.replies,
        points=options.points,
        keep_models=options.keep_models,
    )
    plan.check()
    return plan


def shared_flags(options: ManyRuns) -> dict[str, object]:
    """The flags that are passed to every candidate."""
    return {name: value for name in SHARED if (value := getattr(options, name)) is not None}


def terminal(quiet: bool) -> Console:
    """A console; with --quiet in a terminal, its lines are plain and WIDTH columns wide."""
    console = stdout_console()
    plain = quiet and console.is_terminal
    return Console(highlight=False, force_terminal=False, width=WIDTH) if plain else console


def run(plan: ComparisonPlan, console: Console, title: str, options: ManyRuns) -> Results:
    """Run the jobs without a result, with one progress display."""
    from burnish.compare.comparison import run_jobs

    jobs = plan.jobs()
    console.print(Text.assemble(("burnish ", "bold"), f"{title}: {len(jobs)} runs in {plan.out}"), soft_wrap=True)
    return run_jobs(
        jobs,
        plan.out,
        console,
        title=title,
        workers=options.workers,
        device=options.device,
        limit=options.limit_seconds,
    )


def report(
    found: Board,
    out: Path,
    console: Console,
    command: str,
    *,
    extra: str = "",
    title: str = "",
    more: Callable[[], None] = lambda: None,
) -> None:
    """Print the leaderboard and write report.html, board.json and runs.csv into the folder.

    extra: HTML to add to the page; more: a function that prints more after the leaderboard
    """
    from burnish.compare.data import as_csv, as_json
    from burnish.compare.page import page
    from burnish.compare.table import show

    show(found, console)
    more()
    (out / "report.html").write_text(page(found, command, extra, title))
    (out / "board.json").write_text(as_json(found, command))
    (out / "runs.csv").write_text(as_csv(found))
    console.print()
    for name, what in (
        ("report.html", "the whole report, one file"),
        ("board.json", "its numbers"),
        ("runs.csv", "every run"),
    ):
        console.print(Text.assemble((f"{out / name}", "cyan"), (f"   {what}", "dim")), soft_wrap=True)


def unfinished(ran: Results, console: Console, command: str) -> int:
    """The exit code. Prints the command that resumes unfinished runs; raises ValueError if every run failed."""
    if not ran.complete:
        done = sum(row.done for row in ran.rows)
        text = f"Stopped: {ran.why}. {done} runs are finished, the others have saved a checkpoint. Resume with"
        console.print(Text(text, "yellow"))
        console.print(Text(f"  {command}", "cyan"), soft_wrap=True)
        return 130
    if not any(row.done for row in ran.rows):
        reasons = "; ".join(dict.fromkeys(f"{row.label}: {row.reason}" for row in ran.rows))
        raise ValueError(f"every run failed: {reasons}")
    return 0
