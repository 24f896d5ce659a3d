"""Columns that options of a method name: whether the task has them, before anything is loaded."""

from __future__ import annotations

from collections.abc import Sequence

from burnish.tasks.resolve import datasets_of
from burnish.tasks.source import Source

_NOT_COLUMNS = ("prompt", "messages")


def has_column(source: Source, *names: str) -> bool:
    """Whether the task gives any of these columns in some of its rows."""
    if any(name in source.gives for name in names):
        return True
    return any(dataset.how_many(name)[0] for dataset in datasets_of(source) for name in names)


def require_column(source: Source, names: Sequence[str], option: str, wanted: str, remedy: str) -> None:
    """Raise ValueError where the task has none of these columns.

    option  the option that names them, with its value;  wanted  what they say;  remedy  another way, if there is one
    """
    if has_column(source, *names):
        return
    has = ", ".join(sorted(name for name in source.gives if name not in _NOT_COLUMNS)) or "nothing"
    raise ValueError(
        f"task {source.name!r} has no column {' or '.join(map(repr, names))}, which says {wanted} ({option}; it gives "
        f"{has}); correct the name, choose data that has it{', or ' + remedy if remedy else ''}"
    )
