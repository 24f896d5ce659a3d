"""`burnish toggle`: demonstrations that think or not, by what the system message says."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from burnish.config.flags import read
from burnish.core.option import Option
from burnish.util.terminal import stdout_console

COUNT = 256  # rows of a task without an end


@dataclass(frozen=True)
class ToggleOptions:
    """burnish toggle --task DATA --out FILE: two rows of each demonstration that has a thought.

    The system message of one is "detailed thinking on", and its reply has the thought in <think> tags; that of the
    other is "detailed thinking off", and its reply is the answer alone. SFT on them teaches a model to be switched; the
    reward `toggled` checks that it obeys. A thought is what stands in <think> tags, or before the last --mark."""

    task: str = ""
    """Demonstrations: a dataset, or a built-in task."""
    out: str = ""
    """The .jsonl file to write; it must not exist."""
    mark: str = "answer:"
    """Where replies have no tags: the words with which the answer begins."""
    tasks: Annotated[int | None, Option(at_least=1)] = None
    """Number of rows; by default all rows of a dataset, or 256 of a task without an end."""
    columns: str | None = None
    """Columns that have unusual names: prompt=text."""
    json: bool = False
    """Print JSON only."""


def main(words: list[str]) -> int:
    asked = read(ToggleOptions, "toggle", ["--out" if word == "-o" else word for word in words])
    if asked is None:
        return 0
    options = asked[1]
    out = Path(options.out)
    if not options.task or not options.out or out.exists() or out.suffix != ".jsonl" or not out.parent.is_dir():
        raise ValueError(
            "say what is read and where a new .jsonl file is written: burnish toggle --task data.jsonl --out both.jsonl"
        )
    from burnish.datagen.stored_rows import rows_asked
    from burnish.datagen.toggle import toggled_rows
    from burnish.tasks.replies import cut_to_replies
    from burnish.tasks.resolve import resolve_task

    source = resolve_task(options.task, columns=options.columns)
    cut_to_replies(source)
    if "demo" not in source.gives:
        raise ValueError(f"task {options.task!r} has no demonstrations; give it a file with prompts and completions")
    tasks = [source.task("train", i) for i in range(rows_asked(source.size("train"), options.tasks, COUNT))]
    rows = [row for task in tasks for row in toggled_rows(task, options.mark)]
    if not rows:
        raise ValueError(f"no reply of {options.task} has a thought in <think> tags or before {options.mark!r}")
    aside = out.with_name(f".{out.name}.new")
    aside.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    aside.rename(out)
    if options.json:
        print(json.dumps({"task": options.task, "out": options.out, "demonstrations": len(tasks), "rows": len(rows)}))
    else:
        stdout_console().print(f"[bold]{len(rows)}[/] rows of {len(tasks)} demonstrations in {out}", soft_wrap=True)
    return 0
