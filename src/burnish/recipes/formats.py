"""Rows in the formats that commands write, for the checks of stages that will read them."""

from __future__ import annotations

from collections.abc import Mapping

from burnish.datagen.stored_rows import row_at
from burnish.datagen.toggle import toggled_rows
from burnish.recipes.maker import Rows
from burnish.tasks.resolve import resolve_task

COUNT = 64  # enough for a held-out part


def preferences(options: Mapping[str, object]) -> Rows:
    """Of `burnish pairs`: pairs, lists or labels."""
    kind = str(options.get("format", "pairs"))
    reply = {"role": "assistant", "content": "answer: 1"}
    other = {"role": "assistant", "content": "answer: 2"}
    rows: dict[str, dict[str, object]] = {
        "pairs": {"chosen": [reply], "rejected": [other], "score_chosen": 1.0, "score_rejected": 0.0, "margin": 1.0},
        "lists": {"responses": ["answer: 1", "answer: 2"], "scores": [1.0, 0.0], "margin": 1.0},
        "labels": {"completion": [reply], "label": True},
    }
    return [_asked(i) | rows[kind] | ({"label": i % 2 == 0} if kind == "labels" else {}) for i in range(COUNT)]


def revised(options: Mapping[str, object]) -> Rows:
    """Of `burnish revise`: completions or pairs."""
    made = preferences({"format": "pairs"})
    if options.get("format") == "pairs":
        return made
    return [{"prompt": row["prompt"], "completion": row["chosen"]} for row in made]


def labelled_steps(options: Mapping[str, object]) -> Rows:
    """Of `burnish steps`: the steps of a reply, and a label for each."""
    soft = options.get("rule", "soft") not in ("hard", "first_error")
    right, wrong = (0.75, 0.25) if soft else (True, False)
    return [_asked(i) | {"completions": ["one\n", "answer: 1"], "labels": [right, wrong]} for i in range(COUNT)]


def columns_of(options: Mapping[str, object]) -> str | Mapping[str, str] | None:
    """The option `columns` of a stage."""
    columns = options.get("columns")
    return columns if isinstance(columns, str | Mapping) else None


def same_rows(options: Mapping[str, object]) -> Rows:
    """Of a command that filters rows: the first ones of its task."""
    source = resolve_task(str(options["task"]), columns=columns_of(options))
    size = source.size("train")
    return [row_at(source, "train", i)[1] for i in range(COUNT if size is None else min(COUNT, size))]


def toggled(options: Mapping[str, object]) -> Rows:
    """Of `burnish toggle`: rows whose system messages switch thinking on and off."""
    source = resolve_task(str(options["task"]), columns=columns_of(options))
    mark = str(options.get("mark", "answer:"))
    return [row for i in range(COUNT // 2) for row in toggled_rows(source.task("train", i), mark)]


def rated(options: Mapping[str, object]) -> Rows:
    """Of `burnish rate`: rows of its task with their rates."""
    more = {"mean_score": 0.5, "score_variance": 0.1}
    return [row | more | {"pass_rate": i % 9 / 8} for i, row in enumerate(same_rows(options))]


def _asked(i: int) -> dict[str, object]:
    return {"prompt": [{"role": "user", "content": f"{i}+1=?"}]}
