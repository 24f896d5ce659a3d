"""`burnish runs`: list runs, show or export one, and control a running one."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from burnish.config.flags import read
from burnish.store.records import EventRow, TraceRow
from burnish.util.terminal import PIPE_WIDTH, stdout_console

STATES = {"running": "cyan", "finished": "green", "stopped": "yellow", "failed": "red", "unreadable": "red"}
EVENTS = 12


@dataclass(frozen=True)
class RunsOptions:
    """burnish runs [DIR]                 the runs in a folder (runs/), newest first
    burnish runs show RUN              one run: configuration, metrics, events, a few traces
    burnish runs export RUN --to KIND  metrics, timings, traces and events as parquet, jsonl or csv
    burnish runs pause RUN             pause a running run after its step; also: resume, checkpoint, stop

    RUN is a path, a name below runs/, the beginning of one, or `last`."""

    to: str = "jsonl"
    """The format of exported files: parquet, jsonl or csv."""
    out: str | None = None
    """The folder for exported files; by default RUN/export."""
    tag: str | None = None
    """List only the runs with this tag (with all of them, if several are given with commas)."""
    json: bool = False
    """Print JSON instead of a table."""


def main(words: list[str]) -> int:
    asked = read(RunsOptions, "runs", words, plain=2)
    if asked is None:
        return 0
    plain, options = asked
    if plain and plain[0] in _VERBS:
        if len(plain) < 2:
            raise ValueError(f"say which run: burnish runs {plain[0]} RUN (burnish runs lists them)")
        from burnish.report.catalogue import pick

        return _VERBS[plain[0]](pick(plain[1]), options)
    if len(plain) > 1:
        raise ValueError(f"`burnish runs` cannot {plain[0]!r}; it can {', '.join(_VERBS)}")
    return _list(plain[0] if plain else None, options)


def _list(folder: str | None, options: RunsOptions) -> int:
    from burnish.report.catalogue import RUNS, printable, summaries, tags_of

    root = folder or RUNS
    if folder and not os.path.isdir(folder):
        raise ValueError(f"there is no folder {folder!r}; burnish runs [DIR] lists the runs of a folder")
    runs = summaries(root)
    if options.tag:
        wanted = set(tags_of(options.tag))
        runs = [run for run in runs if wanted <= set(run.tags)]
    if options.json:
        rows = [{**dataclasses.asdict(run), "path": printable(str(run.path), 4096)} for run in runs]
        print(json.dumps([{k: v for k, v in row.items() if k != "same"} for row in rows], indent=1))
        return 0
    console = stdout_console()
    if not runs:
        tagged = f" with the tag {options.tag}" if options.tag else ""
        console.print(f"No runs in {root}/{tagged} yet. burnish train starts one.")
        return 0
    heads = ("run", "method", "task", "model", "steps", "result", "state", "age")
    cells: list[tuple[Text, ...]] = []
    for run in runs:
        steps = f"{run.step}/{run.steps}" if run.step != run.steps else str(run.steps)
        state = "paused" if run.paused else run.state
        name = f"{run.name} [{', '.join(run.tags)}]" if run.tags else run.name
        columns = (name, run.method, run.task, Path(run.model).name, steps, run.result)
        cells.append((*map(Text, columns), Text(state, STATES.get(run.state, "")), Text(run.age)))
    left_out: set[str] = set()
    for head in ("model", "task", "age", "method", ""):  # left out of a terminal that is too narrow for all of them
        places = [i for i, name in enumerate(heads) if name not in left_out]
        table = _table(*(heads[i] for i in places))
        for row in cells:
            table.add_row(*(row[i] for i in places))
        if table.__rich_measure__(console, console.options.update_width(PIPE_WIDTH)).maximum <= console.width:
            break
        left_out.add(head)
    console.print(table)
    console.print(
        Text("burnish runs show RUN shows one in detail; burnish ui shows all of them in a browser.", style="dim")
    )
    return 0


def _show(path: Path, options: RunsOptions) -> int:
    from burnish.report.catalogue import duration, readable, summary
    from burnish.report.summary import held_out_lines
    from burnish.store.reader import open_store

    with readable(path), open_store(path) as store:
        told = held_out_lines(store.evaluation()) if store.state() != "running" else []
        run, info, metrics, events = summary(store, path), store.info(), store.metrics(), store.events()
        samples, count = store.traces(order="newest", limit=3), store.count()
    if options.json:
        print(
            json.dumps(
                {**info, "folder": str(path), "state": run.state, "metrics": metrics, "events": events}, indent=1
            )
        )
        return 0
    console = stdout_console()
    console.print(Text.assemble((str(path), "bold"), "  ", (run.state, STATES.get(run.state, ""))))
    facts = _table("", "")
    facts.show_header = False
    config = info.get("config", {})
    git = info.get("git")
    environment = info.get("environment", {})
    changed = f", {len(git['changed'])} files changed" if git and git.get("changed") else ""
    for name, text in (
        ("method", f"{run.method} on {run.task}, {Path(run.model).name}, seed {run.seed}"),
        ("steps", f"{run.step} of {run.steps}, {count:,} traces recorded"),
        ("held-out", "\n".join(line.removeprefix("held-out ") for line in told) or run.result),
        ("options", "  ".join(f"{k}={v}" for k, v in config.items() if k not in _SHOWN and v is not None)),
        ("versions", ", ".join(f"{k} {environment[k]}" for k in ("burnish", "torch", "python") if k in environment)),
        ("git", f"{git['commit'][:12]} ({git['branch']}){changed}" if git else ""),
        ("updated", duration(_since(run.updated)) + " ago"),
    ):
        if text:
            facts.add_row(Text(name, "dim"), Text(text))
    console.print(facts)
    _show_metrics(console, metrics)
    _show_events(console, events)
    _show_traces(console, samples)
    return 0


_SHOWN = ("method", "task", "model", "seed", "steps", "out")  # options that other lines show


def _since(moment: float) -> float:
    import time

    return time.time() - moment


def _show_metrics(console: Console, metrics: list[dict[str, Any]]) -> None:
    """Print the first, last, smallest and largest value of each metric."""
    if not metrics:
        return
    from burnish.report.catalogue import printable

    table = _table("metric", "first", "last", "least", "largest")
    for name in dict.fromkeys(name for row in metrics for name in row if name != "step"):
        values = [row[name] for row in metrics if isinstance(row.get(name), int | float)]
        if values:
            table.add_row(
                Text(printable(name)), *(f"{x:.4g}" for x in (values[0], values[-1], min(values), max(values)))
            )
    for column in table.columns[1:]:
        column.justify = "right"
    console.print()
    console.print(table)


def _show_events(console: Console, events: Sequence[EventRow]) -> None:
    if not events:
        return
    table = _table("step", "event", "")
    for event in events[-EVENTS:]:
        colour = {"warning": "yellow", "error": "red"}.get(event["level"], "")
        table.add_row(
            "" if event["step"] is None else str(event["step"]), Text(event["kind"]), Text(event["text"], colour)
        )
    console.print()
    console.print(table)


def _show_traces(console: Console, traces: Sequence[TraceRow]) -> None:
    from burnish.report.final_message import one_line

    table = _table("trace", "reward", "prompt", "reply")
    for trace in traces:
        reward = "" if trace["reward"] is None else f"{trace['reward']:.2f}"
        table.add_row(str(trace["id"]), reward, one_line(trace["prompt"]), one_line(trace["text"]))
    if traces:
        console.print()
        console.print(table)


def _export(path: Path, options: RunsOptions) -> int:
    from burnish.report.export import export
    from burnish.store.reader import open_store

    out = Path(options.out) if options.out else path / "export"
    with open_store(path) as store:
        for name, rows in export(store, out, options.to).items():
            print(f"{out / f'{name}.{options.to}'}: {rows:,} rows")
    return 0


def _ordering(action: str) -> Callable[[Path, RunsOptions], int]:
    def send(path: Path, options: RunsOptions) -> int:
        from burnish.store.control import order
        from burnish.store.reader import open_store

        with open_store(path) as store:
            state = store.state()
        if state != "running":
            raise ValueError(
                f"{path} is {state}, so there is nothing to {action}; burnish train --resume {path} resumes it"
            )
        order(path, action)
        print(f"{action}: sent to {path}; it takes effect after the current step")
        return 0

    return send


_VERBS: dict[str, Callable[[Path, RunsOptions], int]] = {
    "show": _show,
    "export": _export,
    **{action: _ordering(action) for action in ("pause", "resume", "checkpoint", "stop")},
}


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for i, column in enumerate(columns):
        table.add_column(column, style="cyan" if i == 0 and column else None, overflow="fold")
    return table
