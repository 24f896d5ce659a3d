"""`burnish revise`: replies that a critic criticises and revises by principles (constitutional AI), as a file."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.console import Console
from rich.progress import Progress

from burnish.config.flags import read
from burnish.core.option import Option
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.datagen.unfinished_file import UnfinishedFile

COUNT = 256  # prompts of a task without an end


@dataclass(frozen=True)
class ReviseOptions:
    """burnish revise --model MODEL --task TASK --principles FILE --out FILE: replies revised by principles.

    The model replies to each training prompt. A critic (--critic, by default the model itself) says how the reply
    departs from a principle drawn at random, and then revises it, --rounds times. Rows hold the last revision as the
    completion, for sft, or beside the first reply as chosen and rejected, for dpo. --lessons writes rows that teach a
    small model the brief questions. After an interruption the same command continues."""

    model: str = "tiny"
    """The model that replies."""
    task: str = "sort"
    """The prompts: a dataset or a built-in task."""
    out: str = ""
    """The .jsonl or .parquet file to write; it must not exist."""
    critic: str = ""
    """Who criticises and revises: a model, or endpoint(URL, NAME); by default --model."""
    principles: str = ""
    """Principles, one per line, or a file with them; by default five general ones."""
    rounds: Annotated[int, Option(at_least=1)] = 1
    """Rounds of critique and revision."""
    format: Literal["completions", "pairs"] = "completions"
    """completions (for sft), or pairs of the last revision and the first reply (for dpo)."""
    words: Literal["full", "brief"] = "full"
    """How much a question says; brief is for small models."""
    lessons: bool = False
    """Write rows that teach the brief questions, from pairs of the task; nothing is sampled."""
    tasks: Annotated[int | None, Option(at_least=1)] = None
    """Number of rows; by default all rows of a dataset, or 256 of a task without an end."""
    max_new_tokens: Annotated[int, Option(at_least=1)] = 64
    """The longest reply, in tokens."""
    columns: str | None = None
    """Columns of a dataset that have unusual names: prompt=text."""
    seed: int = 0
    """The same seed samples the same replies."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    json: bool = False
    """Print the summary as JSON only."""


def main(words: list[str]) -> int:
    asked = read(ReviseOptions, "revise", ["--out" if word == "-o" else word for word in words])
    if asked is None:
        return 0
    options = asked[1]
    if not options.out:
        raise ValueError("say where to write: burnish revise --model tiny --task sort --out revised.jsonl")
    from burnish.datagen.unfinished_file import UnfinishedFile, require_pyarrow

    same = {k: v for k, v in asdict(options).items() if k not in ("out", "tasks", "device", "json")}
    file = UnfinishedFile(Path(options.out), same)
    if file.out.suffix == ".parquet":
        require_pyarrow()
    with file:
        try:
            make = _teach if options.lessons else _write
            make(file, options)
        except KeyboardInterrupt:
            print(f"stopped after {file.done} prompts, in {file.partial}; the same command continues.", file=sys.stderr)
            return 130
        made = list(file.all())
        summary = {
            "prompts": len(made),
            "rows": sum(len(one.rows) for one in made),
            "cut_off": sum(one.cut_off for one in made),
            "failed": sum(one.failed for one in made),
            "changed": sum(_changed(row) for one in made for row in one.rows),
        }
        if not summary["rows"]:
            raise ValueError(
                f"none of the {len(made)} prompts gave a row: {summary['cut_off']} replies were cut off (raise "
                f"--max-new-tokens), {summary['failed']} could not be revised (another --critic, or --words brief)"
            )
        summary["rows"] = file.finish()
    _show(file, options, summary)
    return 0


def _changed(row: dict[str, object]) -> bool:
    """Whether a revision differs from the first reply."""
    last, first = row.get("completion", row.get("chosen")), row.get("first", row.get("rejected"))
    said = last[0]["content"] if isinstance(last, list) else last
    return first is not None and said != (first[0]["content"] if isinstance(first, list) else first)


def _principles(options: ReviseOptions) -> list[str]:
    from burnish.rewards.judged import text_or_file
    from burnish.rewards.salmon import DEFAULT

    lines = text_or_file(options.principles or DEFAULT, "principles").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _teach(file: UnfinishedFile, options: ReviseOptions) -> None:
    """Lessons from the pairs of the task."""
    from burnish.datagen.preference_data import Made
    from burnish.datagen.revised import lessons
    from burnish.datagen.stored_rows import rows_asked
    from burnish.tasks.resolve import resolve_task

    source = resolve_task(options.task, columns=options.columns)
    if not source.gives & {"chosen", "mistake"}:
        raise ValueError(f"task {options.task!r} has no pairs (columns chosen and rejected) to make lessons of")
    count = rows_asked(source.size("train"), options.tasks, COUNT)
    rows = list(lessons(source, _principles(options), count))
    each = len(rows) // count
    file.add([Made(i, rows[i * each : (i + 1) * each]) for i in range(file.done, count)])


def _write(file: UnfinishedFile, options: ReviseOptions) -> None:
    """Sample, criticise and revise what is not in the file yet."""
    from burnish.commands.loaded import load_policy
    from burnish.core.step import Settings
    from burnish.datagen.revised import Constitution, revise
    from burnish.datagen.stored_rows import rows_asked
    from burnish.score.judges import read_judge
    from burnish.tasks.resolve import resolve_task

    source = resolve_task(options.task, columns=options.columns)
    if "env" in source.gives:
        raise ValueError(f"task {options.task!r} is a game of several turns; choose prompts with one reply")
    how = Constitution(_principles(options), options.rounds, options.words, options.format == "pairs")
    judge = read_judge(options.critic or f"policy(max_tokens={options.max_new_tokens})")
    settings = Settings(max_new_tokens=options.max_new_tokens)
    models = load_policy(options.model, settings, options.device, more=judge.models)
    count = rows_asked(source.size("train"), options.tasks, COUNT)
    console = Console(stderr=True, highlight=False)
    hidden = options.json or not console.is_terminal
    with Progress(console=console, transient=True, disable=hidden) as progress:
        bar = progress.add_task("prompts", total=count, completed=file.done)
        found = revise(models, source, settings, judge, how, start=file.done, count=count, seed=options.seed)
        for made in found:
            file.add(made)
            progress.update(bar, completed=file.done)


def _show(file: UnfinishedFile, options: ReviseOptions, summary: dict[str, int]) -> None:
    if options.json:
        print(json.dumps({"out": options.out, **summary}))
        return
    console = stdout_console()
    method = "dpo" if options.format == "pairs" else "sft"
    if options.lessons:
        console.print(f"[bold]{summary['rows']}[/] lessons in [bold cyan]{file.out}[/]", soft_wrap=True)
    else:
        console.print(
            f"[bold]{summary['rows']}[/] replies to {summary['prompts']} prompts in [bold cyan]{file.out}[/]: "
            f"{summary['changed']} changed; {summary['cut_off']} cut off and {summary['failed']} without a revision "
            "left out",
            soft_wrap=True,
        )
    console.print(f"burnish train {method} --model {options.model} --task {file.out}", style="dim", soft_wrap=True)
