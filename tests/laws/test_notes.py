"""Every key of a trace's note is declared with a sentence (core/notes.py, or NOTES in the file of a paper)."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import burnish
from burnish.core.notes import NOTES
from burnish.report.definitions import declared

SRC = Path(burnish.__file__).parent
LOOPED = {("datagen/preference_data.py", "note"), ("zoo/self_debug.py", "split"), ("zoo/teams_rl.py", "texts")}
OF_RUNS = "report/api.py"  # a note on a run, not on a trace


def is_note(node: ast.AST) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) == "note"


def of_dicts(node: ast.AST) -> list[ast.expr]:
    return [key for inner in ast.walk(node) if isinstance(inner, ast.Dict) for key in inner.keys if key is not None]


def keys_in(tree: ast.AST) -> Iterator[ast.expr]:
    """What stands for a key: note[KEY], note.get(KEY), KEY in note, note = {KEY: ...}, f(note={KEY: ...})."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=value, slice=key) if is_note(value):
                yield key
            case ast.Call(func=ast.Attribute(value=value, attr="get" | "pop" | "setdefault"), args=[key, *_]) if (
                is_note(value)
            ):
                yield key
            case ast.Call(func=ast.Attribute(value=value, attr="update"), args=[given]) if is_note(value):
                yield from of_dicts(given)
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[value]) if is_note(value):
                yield key
            case ast.keyword(arg="note", value=value):
                yield from of_dicts(value)
            case ast.Assign(targets=[target], value=value) if is_note(target):
                yield from of_dicts(value)
            case ast.AnnAssign(target=target, value=ast.expr() as value) if is_note(target):
                yield from of_dicts(value)


def notes_of(file: Path) -> Iterator[str]:
    place = file.relative_to(SRC)
    for key in keys_in(ast.parse(file.read_text())):
        if isinstance(key, ast.Name) and (place.as_posix(), key.id) not in LOOPED:
            yield getattr(importlib.import_module(".".join(("burnish", *place.with_suffix("").parts))), key.id)
        elif isinstance(key, ast.Constant):
            yield str(key.value)
        else:
            assert isinstance(key, ast.Name), f"{place}: which note is {ast.unparse(key)}? Write a string or its name"


def test_a_note_is_declared_and_each_declared_one_is_used() -> None:
    own = declared("NOTES")
    unknown, left = [], set(NOTES) | {key for keys in own.values() for key in keys}
    for file in sorted(SRC.rglob("*.py")):
        if "note" not in file.read_text() or file == SRC / OF_RUNS:
            continue
        keys = set(notes_of(file))
        left -= keys
        unknown += [f"{file.relative_to(SRC)}: {key}" for key in sorted(keys - {*NOTES, *own.get(file, ())})]
    assert not unknown, unknown
    assert left <= {"answer", "metrics", "seat", "against"}, (
        f"nothing writes or reads {left}"
    )  # rollout/episode.py: more


def test_the_law_sees_each_way_of_writing_a_note() -> None:
    ways = 't.note["a"] = 1; t.note.get("b"); "c" in t.note; f(note={"d": 1}); note = {"e": 1}; t.note.update({"f": 1})'
    assert {ast.literal_eval(key) for key in keys_in(ast.parse(ways))} == set("abcdef")
