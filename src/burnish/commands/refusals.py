"""`burnish refusals CLASSIFIER --task DATA`: why the replies of a dataset refuse, and the rows without refusals."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from rich.table import Table

from burnish.config.flags import read
from burnish.core.option import Option
from burnish.util.terminal import stdout_console
from burnish.verifiers.refusal_categories import BRANCHES, CANNOT, SHOULD_NOT, categories_of

if TYPE_CHECKING:
    from torch import Tensor

    from burnish.core.types import Task
    from burnish.datagen.refusals import Counted
    from burnish.verifiers.refusal_categories import Categories


@dataclass(frozen=True)
class RefusalsOptions:
    """burnish refusals CLASSIFIER --task DATA: the composition of the refusals in data.

    CLASSIFIER is the directory of a model that burnish train refusal_classifier has trained. Shown is how many replies
    are in each branch and each category, with precision and recall where the rows have labels. --out writes the rows
    that --drop leaves. Without a classifier, --generate N --out FILE writes labelled replies to train one on; those of
    --split heldout have other words."""

    task: str = ""
    """A dataset with prompts and replies."""
    split: Literal["train", "heldout"] = "train"
    """Which rows: those for training, or the held-out ones."""
    tasks: Annotated[int | None, Option(at_least=1)] = None
    """Number of rows; by default all."""
    column: str = "refusal"
    """The column with labels, if there is one."""
    cannot: str = ",".join(CANNOT)
    """The categories of what cannot be done that it was trained with."""
    should_not: str = ",".join(SHOULD_NOT)
    """The categories of what should not be done that it was trained with."""
    drop: Literal["any", "cannot", "should_not"] = "any"
    """Which refusals --out leaves out."""
    out: str | None = None
    """Write the rows without these refusals to this .jsonl file; it must not exist."""
    generate: Annotated[int | None, Option(at_least=1)] = None
    """Write so many generated rows with their categories, of the --split, and read none."""
    columns: str | None = None
    """Columns of a dataset that have unusual names: prompt=text,completion=reply."""
    device: str = "auto"
    """cpu, cuda, or auto."""
    json: bool = False
    """Print JSON only."""


def main(words: list[str]) -> int:
    asked = read(RefusalsOptions, "refusals", words, plain=1)
    if asked is None:
        return 0
    names, options = asked
    if options.generate is None and (not names or not options.task):
        raise ValueError("say which classifier reads what: burnish refusals runs/DIR/model --task data.jsonl")
    if options.out and (Path(options.out).exists() or Path(options.out).suffix != ".jsonl"):
        raise ValueError(f"--out {options.out} must be a new file that ends in .jsonl")
    if options.generate is not None:
        return _generate(options.generate, options)
    categories = categories_of(options.cannot, options.should_not)
    tasks, chances = _read(names[0], options, categories)
    import torch

    from burnish.datagen.refusals import composition

    labelled = all(task.given.get(options.column) is not None for task in tasks)
    where = f"column {options.column!r}"
    labels = torch.tensor([categories.labels(t.given[options.column], where) for t in tasks]) if labelled else None
    counts = composition(chances, labels, categories)
    kept = (chances[:, categories.places(options.drop)] <= 0.5).all(-1).tolist()
    if options.out:
        _write(Path(options.out), [task for task, keep in zip(tasks, kept, strict=True) if keep])
    _show(options, counts, len(tasks), sum(kept))
    return 0


def _generate(count: int, options: RefusalsOptions) -> int:
    from burnish.datagen.refusal_rows import refusal_rows

    if not options.out:
        raise ValueError("say where the rows are written: burnish refusals --generate 2000 --out refusals.jsonl")
    text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in refusal_rows(count, options.split))
    Path(options.out).write_text(text, encoding="utf-8")
    stdout_console().print(f"{count} replies with their categories in {options.out}", soft_wrap=True)
    stdout_console().print(f"burnish train refusal_classifier --task {options.out}", style="dim", soft_wrap=True)
    return 0


def _read(model: str, options: RefusalsOptions, categories: Categories) -> tuple[list[Task], Tensor]:
    """The rows, and what the classifier says of each."""
    from burnish.core.roles import frozen
    from burnish.core.step import Settings
    from burnish.datagen.refusals import chances_of
    from burnish.models.build import build
    from burnish.models.known_models import resolve
    from burnish.tasks.replies import cut_to_replies
    from burnish.tasks.resolve import resolve_task

    source = resolve_task(options.task, columns=options.columns)
    cut_to_replies(source)
    size = source.size(options.split)
    if "demo" not in source.gives or size is None:
        raise ValueError(
            f"task {options.task!r} is no dataset with replies; give it a file with prompts and completions"
        )
    count = min(size, options.tasks or size)
    if not count:
        raise ValueError(f"task {options.task!r} has no rows in the split {options.split!r}; choose the other --split")
    tasks = [source.task(options.split, i) for i in range(count)]
    role = frozen(model, outputs=len(categories.names))
    models = build({"refusal": role}, resolve(model), Settings(), device=options.device)
    return tasks, chances_of(tasks, models, Settings(), categories)


def _write(path: Path, tasks: list[Task]) -> None:
    from burnish.core.types_json import plain

    with path.open("w") as file:
        for task in tasks:
            row: dict[str, object] = {"prompt": task.prompt, "completion": task.given["demo"]}
            row |= {name: value for name, value in task.given.items() if name not in ("demo", "prompt")}
            file.write(json.dumps(plain(row), ensure_ascii=False) + "\n")


def _show(options: RefusalsOptions, counts: list[Counted], rows: int, kept: int) -> None:
    if options.json:
        found = [{**asdict(one), "precision": one.precision, "recall": one.recall} for one in counts]
        print(json.dumps({"task": options.task, "rows": rows, "kept": kept, "out": options.out, "counts": found}))
        return
    table = Table(box=None, padding=(0, 3, 0, 0), pad_edge=False, header_style="dim")
    for i, column in enumerate(("refusals", "replies", "share", "labelled", "precision", "recall")):
        table.add_column(column, justify="right" if i else "left")
    for one in counts:
        share = [str(one.said), f"{one.said / rows:.1%}"]
        known = ["" if one.true is None else str(one.true)]
        known += ["" if x is None else f"{x:.1%}" for x in (one.precision, one.recall)]
        if one.said or one.true or one.name in BRANCHES:
            table.add_row(f"[bold]{one.name}[/]" if one.name in BRANCHES else f"  {one.name}", *share, *known)
    stdout_console().print(table)
    if options.out:
        stdout_console().print(f"{kept} of {rows} rows without refusals ({options.drop}) in {options.out}", style="dim")
