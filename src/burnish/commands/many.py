"""What the commands that make many runs share: their flags, the running, the report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from burnish.compare.board import Board
    from burnish.compare.comparison import Ran
    from burnish.compare.plan import Candidate, Plan

WIDTH = 160  # of lines that go into a file
SHARED = ("model", "prompts", "max_new_tokens", "lr", "lora", "reward", "device")


@dataclass(frozen=True)
class ManyRuns:
    """Flags of every command that makes many runs."""

    task: str = "add"
    """A built-in task (burnish tasks), gym:NAME, or a dataset."""
    budget: str = "tokens=100k"
    """What each run may use: tokens=2M, samples=5000, seconds=90, flops=3e15 or steps=40."""
    seeds: int = 5
    """Runs of each candidate, with seeds 0, 1, ... Fewer than 4 cannot show a difference."""
    eval_tasks: int = 200
    """Held-out tasks at the end; a half of them along the way."""
    replies: int = 8
    """Replies to each held-out task at the end, for pass@k."""
    points: int = 8
    """Evaluations along the way."""
    threshold: float | None = None
    """The held-out score that sample efficiency is measured at; by default three quarters of the way to the best."""
    out: str | None = None
    """The folder of all its runs; by default runs/COMMAND-TASK-METHODS."""
    workers: int | None = None
    """Runs at a time; by default one for each GPU, or one for each core."""
    limit_seconds: float | None = None
    """Stop politely after so many seconds; the same command goes on."""
    keep_models: bool = False
    """Keep the trained model of every run."""
    model: str = "tiny"
    """A model's name (burnish models) or directory."""
    prompts: int | None = None
    """Tasks in a step, for all candidates."""
    max_new_tokens: int | None = None
    """The longest reply, for all candidates."""
    lr: float | None = None
    """The learning rate, for all candidates; by default each method's own."""
    lora: int | None = None
    """Train LoRA adapters of this rank, for all candidates."""
    reward: str | None = None
    """A reward function path/to/file.py:function, in place of the verifier."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    quiet: bool = False
    """Plain lines only."""


def plan_of(candidates: tuple[Candidate, ...], kind: str, options: ManyRuns) -> Plan:
    """The runs that are asked for, checked before anything runs."""
    from burnish.compare.budget import parse
    from burnish.compare.plan import Plan, default_folder

    names = [one.label for one in candidates] if kind == "compare" else [candidates[0].label]
    out = Path(options.out) if options.out else default_folder(kind, options.task, names)
    plan = Plan(
        candidates, options.task, options.seeds, parse(options.budget), out, shared_flags(options), options.eval_tasks,
        options.replies, options.points, options.keep_models,
    )  # fmt: skip
    plan.check()
    return plan


def shared_flags(options: ManyRuns) -> dict[str, Any]:
    """The flags that every candidate gets."""
    return {name: value for name in SHARED if (value := getattr(options, name)) is not None}


def terminal(quiet: bool) -> Console:
    """Where it is said: plain and wide lines, where nobody looks at a terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal and not quiet else Console(highlight=False, force_terminal=False, width=WIDTH)


def run(plan: Plan, console: Console, title: str, options: ManyRuns) -> Ran:
    """Run what is missing, with one display."""
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
    """The leaderboard here, and as files in the comparison's folder. extra: HTML for the page; more: what to print besides."""
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


def unfinished(ran: Ran, console: Console, command: str) -> int:
    """The command's code; where runs are missing, how to go on, and where none came to an end, why."""
    if not ran.whole:
        done = sum(row.done for row in ran.rows)
        console.print(
            Text(f"Stopped: {ran.why}. {done} runs are done, the others have saved what they did. Go on with", "yellow")
        )
        console.print(Text(f"  {command}", "cyan"), soft_wrap=True)
        return 130
    if not any(row.done for row in ran.rows):
        reasons = "; ".join(dict.fromkeys(f"{row.label}: {row.reason}" for row in ran.rows))
        raise ValueError(f"no run came to its end: {reasons}")
    return 0
