"""Which column of a row is which part of a task: the usual names, and the user's own mapping."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

COLUMNS: dict[str, tuple[str, ...]] = {  # part of a task -> possible column names, of which the first present is used
    "messages": ("messages", "conversations", "conversation"),
    "prompt": ("prompt", "question", "instruction", "query", "problem"),
    "system": ("system", "system_prompt"),
    "tools": ("tools",),
    "demo": ("completion", "response", "output", "solution"),
    "chosen": ("chosen",),
    "rejected": ("rejected",),
    "label": ("label",),
    "answer": ("answer", "ground_truth", "target"),
    "responses": ("responses", "completions"),
    "ranks": ("ranks",),
    "scores": ("scores",),
    "ranking": ("ranking",),
    "labels": ("labels",),
    "text": ("text",),
}
_PART = {name: part for part, names in COLUMNS.items() for name in names}


def read_mapping(given: str | Mapping[str, Any] | None) -> dict[str, str]:
    """Part -> column, from {"prompt": "my_column"} or the text "prompt=my_column,answer=gold".

    A part may be called by any of its usual names: completion=reply is demo=reply.
    """
    if given is None:
        return {}
    if isinstance(given, str):
        pieces = [piece.partition("=") for piece in given.split(",") if piece.strip()]
        for part, equals, column in pieces:
            if not (part.strip() and equals and column.strip()):
                raise ValueError(
                    f"--columns takes part=column, several with commas, not {given!r}; for example: "
                    "--columns prompt=text,answer=gold"
                )
        given = {part.strip(): column.strip() for part, _, column in pieces}
    return {_PART.get(str(part), str(part)): str(column) for part, column in given.items()}


def find_parts(row: Mapping[str, Any], mapping: Mapping[str, str], where: str) -> dict[str, str]:
    """Part of the task -> column of this row; an explicit mapping takes precedence over the usual names."""
    for part, column in mapping.items():
        if column not in row:
            raise ValueError(
                f"{where}: needs column {column!r} (mapped to {part!r}); found columns {', '.join(map(str, row))}"
            )
    filled = frozenset([column for column, value in row.items() if value is not None])
    parts = dict(_known_parts(filled, tuple(mapping.items())))
    if "responses" in parts and "responses" not in mapping and isinstance(row[parts["responses"]], str):
        del parts["responses"]  # one text, not a list to rank
    return parts


@lru_cache(maxsize=256)
def _known_parts(filled: frozenset[str], mapping: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The parts of a row in which these columns are not null: the same for nearly all rows of a dataset."""
    mapped = dict(mapping)
    parts = {part: column for part, column in mapping if column in filled or part == "prompt"}
    taken = set(mapped.values())
    for part, names in COLUMNS.items():
        name = next((name for name in names if name in filled and name not in taken), None)
        if name and part not in mapped and not (part == "messages" and "prompt" in mapped):
            parts[part] = name
    return parts


def no_prompt(row: Mapping[str, Any], where: str) -> str:
    """The error of a row without a prompt, with the ways to name its column."""
    return (
        f"{where}: needs column 'prompt' (or question, instruction, query, problem, messages, text); found columns "
        f"{', '.join(map(str, row))}; name one with --columns prompt=NAME"
    )
