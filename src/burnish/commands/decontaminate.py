"""`burnish decontaminate`: training rows without those that share n-grams with evaluation prompts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from burnish.config.flags import read
from burnish.core.option import Option
from burnish.util.terminal import stdout_console

if TYPE_CHECKING:
    from burnish.datagen.decontaminate import Overlap
    from burnish.tasks.source import Source

COUNT = 1000  # rows of a task without an end


@dataclass(frozen=True)
class DecontaminateOptions:
    """burnish decontaminate --task DATA --against EVALS --out FILE: remove training rows that evaluations contain.

    A word of an evaluation prompt matches a training row if both share n words in a row that contain it. A row is
    contaminated if more than a share of the words of one evaluation prompt match it (Tulu 3, arXiv 2411.15124: 8 words,
    one half). The other rows are written to FILE, unchanged."""

    task: str = ""
    """The training data: a dataset, or a built-in task."""
    against: str = ""
    """The evaluations: datasets or tasks, several with +; a:b.jsonl+sort. All rows of a dataset count."""
    out: str = ""
    """The .jsonl file to write; it must not exist. Without it, the overlap is only measured."""
    n: Annotated[int, Option(at_least=1)] = 8
    """Words that must be equal in a row."""
    share: Annotated[float, Option(at_least=0, below=1)] = 0.5
    """The share of an evaluation prompt's words that must match one training row."""
    tasks: Annotated[int | None, Option(at_least=1)] = None
    """Number of rows of the training data; by default all rows of a dataset, or 1,000 of a task without an end."""
    columns: str | None = None
    """Columns of the training data that have unusual names: prompt=text."""
    json: bool = False
    """Print JSON only."""


def main(words: list[str]) -> int:
    asked = read(DecontaminateOptions, "decontaminate", ["--out" if word == "-o" else word for word in words])
    if asked is None:
        return 0
    options = asked[1]
    if not options.task or not options.against:
        raise ValueError("say what is cleaned of what: burnish decontaminate --task train.jsonl --against test.jsonl")
    out = Path(options.out) if options.out else None
    if out is not None and (out.exists() or out.suffix != ".jsonl" or not out.parent.is_dir()):
        raise ValueError(f"--out {out} must be a new file that ends in .jsonl, in a folder that exists")
    from burnish.datagen.decontaminate import Index
    from burnish.datagen.stored_rows import prompts_of
    from burnish.tasks.resolve import resolve_task

    rows = list(_rows(resolve_task(options.task, columns=options.columns), options.tasks))
    index = Index((text for text, _ in rows), options.n)
    names = [name.strip() for name in options.against.split("+") if name.strip()]
    found = {
        name: index.overlap(prompts_of(resolve_task(name), options.tasks or COUNT), options.share) for name in names
    }
    bad = frozenset().union(*(one.rows for one in found.values()))
    kept = [row for i, (_, row) in enumerate(rows) if i not in bad]
    if out is not None:
        if not kept:
            raise ValueError(f"all {len(rows)} rows of {options.task} overlap with an evaluation; raise --n or --share")
        aside = out.with_name(f".{out.name}.new")
        aside.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in kept), encoding="utf-8")
        aside.rename(out)
    _show(options, found, len(rows), len(kept))
    return 0


def _rows(source: Source, tasks: int | None) -> Iterator[tuple[str, dict[str, object]]]:
    """The prompt of each row, and the row: both splits of a dataset."""
    from burnish.core.messages import prompt_shown
    from burnish.datagen.stored_rows import row_at

    ended = source.size("train") is not None
    places = [(split, i) for split in ("train", "heldout") for i in range(source.size(split) or 0)] if ended else []
    for split, i in islice(places or (("train", i) for i in range(tasks or COUNT)), tasks):
        task, row = row_at(source, split, i)
        yield prompt_shown(task.prompt), row


def _show(options: DecontaminateOptions, found: dict[str, Overlap], rows: int, kept: int) -> None:
    if options.json:
        each = [
            {"against": name, **asdict(one), "rows": len(one.rows), "share": one.share} for name, one in found.items()
        ]
        print(json.dumps({"task": options.task, "rows": rows, "kept": kept, "out": options.out, "found": each}))
        return
    console = stdout_console()
    for name, one in found.items():
        console.print(
            f"{name}: {one.matched} of {one.prompts} prompts ({one.share:.1%}) overlap with {len(one.rows)} rows",
            soft_wrap=True,
        )
    where = f" in {options.out}" if options.out else ""
    console.print(f"[bold]{kept}[/] of {rows} rows of {options.task} remain{where}", soft_wrap=True)
