"""Labels of replies from a column of the data."""

from __future__ import annotations

import torch

from burnish.core.parts import Part, per_trace, supplies
from burnish.core.step import Step
from burnish.core.types import Group, Trace
from burnish.verifiers.refusal_categories import Categories


@supplies("stream:labels")
def category_labels(categories: Categories, column: str, *, author: str = "demo") -> Part:
    """Stream "labels" [T, k]: 1 for each category that the row's column names."""

    def write(trace: Trace, group: Group, step: Step) -> None:
        found = categories.labels(group.task.given[column], f"task {group.task.key[:60]!r}, column {column!r},")
        trace.streams["labels"] = torch.tensor(found).expand(len(trace), len(found)).clone()

    return per_trace(
        write,
        name=f"category_labels({column})",
        reads=frozenset({f"tokens:{author}", f"given:{column}"}),
        writes=frozenset({"stream:labels"}),
    )
