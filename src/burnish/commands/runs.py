"""`burnish runs`: the runs of a folder; one of them in detail; orders to a running one; its data as files."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from burnish.commands.flags import read

STATES = {"running": "cyan", "finished": "green", "stopped": "yellow", "failed": "red"}
EVENTS = 12


@dataclass(frozen=True)
class RunsOptions:
    """burnish runs [DIR]                 the runs in a folder (runs/), the newest first
    burnish runs show RUN              one run: configuration, numbers, events, a few traces
    burnish runs export RUN --to KIND  metrics, timings, traces and events as parquet, jsonl or csv
    burnish runs pause RUN             hold a running run after its step; also: resume, checkpoint, stop

    RUN is a path, a name below runs/, the beginning of one, or `last`."""

    to: str = "jsonl"
    """The kind of files to export: parquet, jsonl or csv."""
    out: str | None = None
    """The folder that exported files go to; by default RUN/export."""
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
    from burnish.report.catalogue import RUNS, summaries

    root = folder or RUNS
    if folder and not Path(folder).is_dir():
        raise ValueError(f"there is no folder {folder!r}; burnish runs [DIR] lists the runs of a folder")
    found = summaries(root)
    if options.json:
        rows = [{**dataclasses.asdict(run), "path": str(run.path)} for run in found]
        print(json.dumps([{k: v for k, v in row.items() if k != "same"} for row in rows], indent=1))
        return 0
    console = Console(highlight=False)
    if not found:
        console.print(f"No runs in {root}/ yet. burnish train starts one.")
        return 0
    table = _table("run", "method", "task", "model", "steps", "result", "state", "age")
    for run in found:
        steps = f"{run.step}/{run.steps}" if run.step != run.steps else str(run.steps)
        state = "paused" if run.paused else run.state
        where = Path(run.model).name
        table.add_row(
            run.name, run.method, run.task, where, steps, run.result, Text(state, STATES.get(run.state, "")), run.age
        )
    console.print(table)
    console.print(Text("burnish runs show RUN says more; burnish ui shows them all in a browser.", style="dim"))
    return 0


def _show(path: Path, options: RunsOptions) -> int:
    from burnish.report.catalogue import spoken_age, summary
    from burnish.report.store import open_store

    with open_store(path) as store:
        run, info, metrics, events = summary(store, path), store.info(), store.metrics(), store.events()
        samples, count = store.traces(order="newest", limit=3), store.count()
    if options.json:
        print(
            json.dumps(
                {**info, "folder": str(path), "state": run.state, "metrics": metrics, "events": events}, indent=1
            )
        )
        return 0
    console = Console(highlight=False)
    console.print(Text.assemble((str(path), "bold"), "  ", (run.state, STATES.get(run.state, ""))))
    facts = _table("", "")
    facts.show_header = False
    config = info.get("config", {})
    git = info.get("git") or {}
    made = info.get("environment", {})
    changed = f", {len(git['changed'])} files changed" if git.get("changed") else ""
    for name, text in (
        ("method", f"{run.method} on {run.task}, {Path(run.model).name}, seed {run.seed}"),
        ("steps", f"{run.step} of {run.steps}, {count:,} traces kept"),
        ("held-out", run.result),
        (
            "options",
            "  ".join(f"{key}={value}" for key, value in config.items() if key not in _SAID and value is not None),
        ),
        ("made with", ", ".join(f"{key} {made[key]}" for key in ("burnish", "torch", "python") if key in made)),
        ("git", f"{git['commit'][:12]} ({git['branch']}){changed}" if git else ""),
        ("updated", spoken_age(_since(run.updated)) + " ago"),
    ):
        if text:
            facts.add_row(Text(name, "dim"), text)
    console.print(facts)
    _show_metrics(console, metrics)
    _show_events(console, events)
    _show_traces(console, samples)
    return 0


_SAID = ("method", "task", "model", "seed", "steps", "out")


def _since(moment: float) -> float:
    import time

    return time.time() - moment


def _show_metrics(console: Console, metrics: list[dict[str, Any]]) -> None:
    """Each number at the first step, at the last, and its least and largest."""
    if not metrics:
        return
    table = _table("metric", "first", "last", "least", "largest")
    for name in dict.fromkeys(name for row in metrics for name in row if name != "step"):
        values = [row[name] for row in metrics if row.get(name) is not None]
        if values:
            table.add_row(name, *(f"{x:.4g}" for x in (values[0], values[-1], min(values), max(values))))
    for column in table.columns[1:]:
        column.justify = "right"
    console.print()
    console.print(table)


def _show_events(console: Console, events: list[dict[str, Any]]) -> None:
    if not events:
        return
    table = _table("step", "event", "")
    for event in events[-EVENTS:]:
        colour = {"warning": "yellow", "error": "red"}.get(event["level"], "")
        table.add_row(
            "" if event["step"] is None else str(event["step"] + 1), event["kind"], Text(event["text"], colour)
        )
    console.print()
    console.print(table)


def _show_traces(console: Console, traces: list[dict[str, Any]]) -> None:
    from burnish.report.ending import one_line

    table = _table("trace", "reward", "prompt", "reply")
    for trace in traces:
        reward = "" if trace["reward"] is None else f"{trace['reward']:.2f}"
        table.add_row(str(trace["id"]), reward, one_line(trace["prompt"]), one_line(trace["text"]))
    if traces:
        console.print()
        console.print(table)


def _export(path: Path, options: RunsOptions) -> int:
    from burnish.report.export import export
    from burnish.report.store import open_store

    out = Path(options.out) if options.out else path / "export"
    with open_store(path) as store:
        for name, rows in export(store, out, options.to).items():
            print(f"{out / f'{name}.{options.to}'}: {rows:,} rows")
    return 0


def _ordering(action: str) -> Callable[[Path, RunsOptions], int]:
    def send(path: Path, options: RunsOptions) -> int:
        from burnish.report.control import order
        from burnish.report.store import open_store

        with open_store(path) as store:
            state = store.state()
        if state != "running":
            raise ValueError(
                f"{path} is {state}, so there is nothing to {action}; burnish train --resume {path} goes on with it"
            )
        order(path, action)
        print(f"{action}: {path} will hear it when its step ends")
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
