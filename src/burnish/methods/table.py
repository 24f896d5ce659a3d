"""The table of methods. Registering is one decorator; the function's signature is the method's configuration."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar

from burnish.method import Method

Recipe = Callable[..., Method]
_R = TypeVar("_R", bound=Recipe)


@dataclass(frozen=True)
class Entry:
    """One row of the table.

    catalogue  the ids of the papers' methods that it is; title, arxiv  the paper
    when       in what situation one would choose it
    example    a command that works on the embedded model
    trial      arguments that make one step small, for the laws; "task" among them names a built-in task other than sort
    """

    name: str
    build: Recipe
    family: str = "own"
    catalogue: tuple[str, ...] = ()
    title: str = ""
    arxiv: str = ""
    summary: str = ""
    when: str = ""
    example: str = ""
    trial: Mapping[str, Any] = field(default_factory=dict)


METHODS: dict[str, Entry] = {}


def register(
    *,
    family: str,
    summary: str,
    when: str = "",
    title: str = "",
    arxiv: str = "",
    catalogue: tuple[str, ...] = (),
    example: str = "",
    trial: Mapping[str, Any] | None = None,
) -> Callable[[_R], _R]:
    """Puts a function(task, *, ...) -> Method into the table under its own name."""

    def mark(function: _R) -> _R:
        entry = entry_of(function)
        METHODS[entry.name] = replace(
            entry,
            family=family,
            catalogue=catalogue,
            title=title,
            arxiv=arxiv,
            summary=summary,
            when=when,
            example=example or f"burnish train {entry.name}",
            trial=trial or {},
        )
        return function

    return mark


def entry_of(function: Recipe) -> Entry:
    """A row for any function that builds a Method: its errors name it, and so does the Method."""
    name = function.__name__

    @functools.wraps(function)
    def build(*args: object, **kwargs: object) -> Method:
        try:
            return replace(function(*args, **kwargs), name=name)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None

    first_line = (function.__doc__ or "").strip().split("\n")[0]
    return Entry(name, build, summary=first_line)


def find(name: str) -> Entry:
    """A registered method, one from an installed package's entry point `burnish.methods`, or path/to/file.py:function."""
    load_all()
    if name in METHODS:
        return METHODS[name]
    if ":" in name:
        return entry_of(_from_file(name))
    for point in entry_points(group="burnish.methods"):
        if point.name == name:
            return entry_of(point.load())
    near = difflib.get_close_matches(name, METHODS, 3, 0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ValueError(
        f"there is no method {name!r}{hint} (`burnish methods` lists them; your own is path/to/file.py:function)"
    )


def load_all() -> None:
    """Import every family, so that the table is whole."""
    import burnish.methods.families  # noqa: F401


def _from_file(spec: str) -> Recipe:
    path, _, name = spec.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"there is no file {path!r} to take the method {name!r} from; write path/to/file.py:function")
    loader = importlib.util.spec_from_file_location(file.stem, file)
    assert loader is not None and loader.loader is not None
    module = importlib.util.module_from_spec(loader)
    sys.modules[file.stem] = module
    loader.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(
            f"{path} has no function {name!r}; it has {', '.join(k for k in vars(module) if not k.startswith('_')) or 'nothing'}"
        )
    return function
