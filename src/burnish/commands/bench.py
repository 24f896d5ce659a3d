"""`burnish eval MODEL --bench NAMES`: public benchmarks, with intervals and a check of contamination."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from burnish.commands.eval_reports import plain, range_of, table_of

if TYPE_CHECKING:
    from burnish.bench.rows import Rows
    from burnish.bench.run import Result
    from burnish.commands.evaluate import EvalOptions
    from burnish.models.model import Model


def main_of(name: str, options: EvalOptions, console: Console) -> int:
    """Measure the benchmarks, print a line for each, and write what the model said."""
    from burnish.bench.rows import rows_of
    from burnish.bench.table import BENCHES, HARNESS, named
    from burnish.commands.loaded import load_policy
    from burnish.core.step import Settings
    from burnish.models.template import Style, read_template

    names = named(str(options.bench))
    own, theirs = [one for one in names if one in BENCHES], [one for one in names if one not in BENCHES]
    out = _folder(options.out)
    data = {one: rows_of(BENCHES[one], options.bench_data) for one in own}  # before the model is loaded
    style = Style(read_template(options.chat_template), options.system_prompt, options.template_option)
    model = load_policy(name, Settings(), options.device, style)["policy"]
    table = table_of("", "examples", "rows", "measure", "mean", "95%")
    told: dict[str, Any] = {"model": name, "benchmarks": {}}
    for one in own:
        result = _measured(model, one, data[one], options, console)
        told["benchmarks"][one] = numbers = _numbers(result, options.trained_on)
        _add_rows(table, result, numbers)
        if out is not None:
            _write(out, one, result)
    if theirs:
        from burnish.bench.harness import run_harness

        tasks = [one.removeprefix(HARNESS) for one in theirs]
        folder, most = options.bench_data, options.tasks
        found = run_harness(model, tasks, data=folder, shots=options.shots, most=most, chat=options.bench_chat)
        told["lm-eval"] = found["results"]
        _add_harness(table, found)
        if out is not None:
            (out / "lm-eval.json").write_text(json.dumps(found, indent=1, default=str))
    if out is not None:
        (out / "results.json").write_text(json.dumps(told, indent=1, default=str) + "\n")
    if options.json:
        print(json.dumps(told, indent=1, default=str))
    else:
        console.print(Text.assemble((name, "bold cyan"), ": greedy replies, or the likeliest of the given answers"))
        console.print(table)
        for one in own:
            _print_contamination(console, one, told["benchmarks"][one], options.trained_on)
    return 0


def _folder(out: str | None) -> Path | None:
    if out is None:
        return None
    path = Path(out)
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise ValueError(f"--out {path} exists already; choose a new folder")
    path.mkdir(parents=True, exist_ok=True)
    return path


def _measured(model: Model, name: str, data: Rows, options: EvalOptions, console: Console) -> Result:
    from dataclasses import replace

    from burnish.bench.kinds import Replies
    from burnish.bench.run import measure
    from burnish.bench.table import BENCHES

    bench = BENCHES[name]
    if isinstance(bench.measure, Replies) and options.max_new_tokens is not None:
        bench = replace(bench, measure=replace(bench.measure, tokens=options.max_new_tokens))
    total = min(len(data.asked), options.tasks or len(data.asked))
    with _bar(name, total, console, options.json) as progress:
        chat = options.bench_chat and isinstance(bench.measure, Replies)
        return measure(model, bench, data, shots=options.shots, most=options.tasks, chat=chat, progress=progress)


@contextmanager
def _bar(what: str, total: int, console: Console, hidden: bool) -> Iterator[Any]:
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    hidden = hidden or not console.is_terminal
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task(what, total=total)
        yield lambda done: progress.update(bar, completed=done)


def _metrics(result: Result) -> list[str]:
    """The metrics of a benchmark, the usual one first. Likelihoods give three, of which a benchmark reports its own."""
    from burnish.bench.kinds import Choices

    usual = result.bench.metric
    if isinstance(result.bench.measure, Choices):
        return [usual] if usual != "acc_norm" else ["acc_norm", "acc"]
    return [usual, *(name for name in result.scores if name != usual)]


def _numbers(result: Result, trained_on: str | None) -> dict[str, Any]:
    numbers: dict[str, Any] = {"rows": len(result.rows), "shots": result.shots, "metric": result.bench.metric}
    numbers |= {name: plain(result.metric(name)) for name in _metrics(result)}
    if groups := result.groups():
        numbers["groups"] = {name: {"mean": mean, "rows": rows} for name, (mean, rows) in groups.items()}
    if trained_on is not None:
        numbers["contamination"] = _contamination(result, trained_on)
    return numbers


def _contamination(result: Result, trained_on: str) -> dict[str, Any]:
    """How many questions training rows contain, and the usual metric on the others (docs/benchmarks.md)."""
    from burnish.core.messages import prompt_shown
    from burnish.datagen.decontaminate import Index
    from burnish.datagen.stored_rows import row_at
    from burnish.tasks.resolve import resolve_task

    source = resolve_task(trained_on)
    places = [(split, i) for split in ("train", "heldout") for i in range(source.size(split) or 0)]
    if not places:
        raise ValueError(f"--trained-on {trained_on} has no rows of its own to compare with; give a dataset")
    index = Index(prompt_shown(row_at(source, split, i)[0].prompt) for split, i in places)
    clean = [i for i, row in enumerate(result.rows) if not index.matching(result.bench.ask(row))]
    told: dict[str, Any] = {"rows": len(result.rows) - len(clean), "share": 1 - len(clean) / len(result.rows)}
    if clean:
        told["clean"] = plain(result.metric(result.bench.metric, clean))
    return told


def _add_rows(table: Any, result: Result, numbers: dict[str, Any]) -> None:
    for i, name in enumerate(_metrics(result)):
        value = result.metric(name)
        lead = (result.bench.name, str(result.shots), str(len(result.rows))) if i == 0 else ("", "", "")
        table.add_row(*lead, name, f"[bold]{value.mean:.1%}[/]", range_of(value))


def _add_harness(table: Any, found: dict[str, Any]) -> None:
    """The results of lm-eval: it gives standard errors, of which 1.96 on each side are 95%."""
    for task, values in found["results"].items():
        rows = found.get("n-samples", {}).get(task, {}).get("effective", "")
        for key, value in values.items():
            if not isinstance(value, float) or "stderr" in key:
                continue
            metric, _, part = key.partition(",")
            error = values.get(f"{metric}_stderr,{part}")
            near = f"[dim]{value - 1.96 * error:.1%} to {value + 1.96 * error:.1%}[/]" if _is_number(error) else ""
            shown = metric if part in ("none", "") else f"{metric}, {part}"
            table.add_row(f"lm-eval:{task}", str(found["n-shot"].get(task, "")), str(rows), shown, f"{value:.1%}", near)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def _print_contamination(console: Console, name: str, numbers: dict[str, Any], trained_on: str | None) -> None:
    told = numbers.get("contamination")
    if told is None:
        return
    text = f"{name}: {told['rows']} of {numbers['rows']} questions ({told['share']:.1%}) overlap with {trained_on}"
    if told["rows"] and "clean" in told:
        clean = told["clean"]
        text += f"; without them {clean['mean']:.1%} [{clean['low']:.1%}, {clean['high']:.1%}]"
    console.print(text, soft_wrap=True)


def _write(out: Path, name: str, result: Result) -> None:
    """What the model was asked and said, and the scores, one line a row."""
    with (out / f"{name}.jsonl").open("w", encoding="utf-8") as file:
        for i, row in enumerate(result.rows):
            scores = {metric: values[i] for metric, values in result.scores.items()}
            line = {"row": row, "prompt": result.prompts[i], "said": result.said[i], "scores": scores}
            file.write(json.dumps(line, ensure_ascii=False, default=str) + "\n")
