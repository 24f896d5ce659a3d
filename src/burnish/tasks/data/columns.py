"""Which column of a row is which part of a task: the usual names, and the user's own mapping."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

COLUMNS: dict[str, tuple[str, ...]] = {  # part of a task -> possible column names, of which the first present is used
    "messages": ("messages", "conversations", "conversation", "dialogue"),
    "prompt": ("prompt", "question", "instruction", "query", "problem", "input"),
    "system": ("system", "system_prompt"),
    "tools": ("tools",),
    "demo": ("completion", "response", "output", "solution"),
    "chosen": ("chosen", "chosen_response"),
    "rejected": ("rejected", "rejected_response"),
    "label": ("label", "kto_tag"),
    "answer": ("answer", "ground_truth", "target"),
    "responses": ("responses", "completions"),
    "ranks": ("ranks",),
    "scores": ("scores",),
    "ranking": ("ranking",),
    "labels": ("labels",),
    "text": ("text",),
    "history": ("history",),
    "images": ("images", "image"),
}
_PART = {name: part for part, names in COLUMNS.items() for name in names}


def read_mapping(given: str | Mapping[str, object] | None) -> dict[str, str]:
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


def find_parts(row: Mapping[str, object], mapping: Mapping[str, str], where: str) -> dict[str, str]:
    """Part of the task -> column of this row; an explicit mapping takes precedence over the usual names."""
    for part, column in mapping.items():
        if column not in row:
            raise ValueError(
                f"{where}: needs column {column!r} (mapped to {part!r}); found columns {', '.join(map(str, row))}"
            )
    filled = frozenset([column for column, value in row.items() if value is not None])
    parts = dict(_known_parts(filled, tuple(mapping.items())))
    if "responses" in parts and "responses" not in mapping and _one_text(row[parts["responses"]]):
        del parts["responses"]  # one text, not a list to rank
    return parts


def _one_text(value: object) -> bool:
    """Whether a cell is one text, and not a list or the JSON text of one (CSV)."""
    return isinstance(value, str) and not value.lstrip().startswith("[")


@lru_cache(maxsize=256)
def _known_parts(filled: frozenset[str], mapping: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The parts of a row in which these columns are not null: the same for nearly all rows of a dataset."""
    mapped = dict(mapping)
    parts = {part: column for part, column in mapping if column in filled or part == "prompt"}
    taken = set(mapped.values())
    spelled = {column.lower(): column for column in sorted(filled - taken, reverse=True)}  # Question, INSTRUCTION
    spelled |= {column: column for column in filled - taken}
    for part, names in COLUMNS.items():
        name = next((spelled[name] for name in names if name in spelled), None)
        if name and part not in mapped and not (part == "messages" and "prompt" in mapped):
            parts[part] = name
    return parts


def no_prompt(row: Mapping[str, object], where: str) -> str:
    """The error of a row without a prompt, with the ways to name its column."""
    talk = next((name for name, value in row.items() if isinstance(value, list) and _is_talk(value)), None)
    named = f"messages={talk}" if talk else "prompt=NAME"
    return (
        f"{where}: needs column 'prompt' (or {', '.join(COLUMNS['prompt'][1:])}, messages, text); found columns "
        f"{', '.join(map(str, row))}; name one with --columns {named}"
    )


def _is_talk(value: list[object]) -> bool:
    """Whether a cell looks like a conversation."""
    return bool(value) and all(isinstance(one, Mapping) and {"role", "from"} & one.keys() for one in value)
