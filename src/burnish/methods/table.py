"""The table of methods. Registering is one decorator; the function's signature is the method's configuration."""

from __future__ import annotations

import difflib
import functools
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TypeVar, cast

from burnish.core.option import options_of
from burnish.method import Method
from burnish.methods.index import INDEX
from burnish.papers import Paper
from burnish.util.failures import said

Recipe = Callable[..., Method]
_R = TypeVar("_R", bound=Recipe)


@dataclass(frozen=True)
class Entry:
    """One row of the table.

    papers     where it was published, the main paper first
    when       in what situation one would choose it
    example    a command that works on the embedded model
    trial      arguments that make one step small, for the laws; "task" among them names a built-in task other than
               sort, "lora" the rank of the adapters that the method needs
    """

    name: str
    build: Recipe
    family: str = "own"
    papers: tuple[Paper, ...] = ()
    summary: str = ""
    when: str = ""
    example: str = ""
    trial: Mapping[str, Any] = field(default_factory=dict)

    @property
    def catalogue(self) -> tuple[str, ...]:
        """The ids of its papers."""
        return tuple(dict.fromkeys(paper.id for paper in self.papers))

    @property
    def library(self) -> bool:
        """Whether it stands in burnish/methods, among those that the documentation recommends; else in the zoo."""
        return INDEX.get(self.name, "").startswith("burnish.methods.")

    @property
    def title(self) -> str:
        """The title of its main paper."""
        return self.papers[0].title if self.papers else ""

    @property
    def arxiv(self) -> str:
        """The arXiv number of its main paper; empty if that has none."""
        return self.papers[0].arxiv if self.papers else ""


METHODS: dict[str, Entry] = {}


def register(
    *papers: Paper, family: str, summary: str, when: str = "", example: str = "", trial: Mapping[str, Any] | None = None
) -> Callable[[_R], _R]:
    """Put a function(task, *, ...) -> Method into the table under its own name, and check the arguments of its calls.

    example, trial: by default with a model for each argument that has no default; the trial has 4 replies to a prompt
    and one update.
    """

    def mark(function: _R) -> _R:
        entry = entry_of(function)
        arguments = inspect.signature(function).parameters
        needed = [name for name, p in arguments.items() if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
        flags = "".join(f" --{name.replace('_', '-')} runs/DIR/model" for name in needed)
        small = {name: least for name, least in (("n", 4), ("updates", 1)) if name in arguments}
        METHODS[entry.name] = replace(
            entry,
            family=family,
            papers=papers,
            summary=summary,
            when=when,
            example=example or f"burnish train {entry.name}{flags}",
            trial={**small, **dict.fromkeys(needed, "tiny")} if trial is None else trial,
        )
        return cast(_R, entry.build)

    return mark


def entry_of(function: Recipe) -> Entry:
    """A row for any function that builds a Method: arguments are checked, errors name it, and so does the Method."""
    name = function.__name__

    @functools.wraps(function)
    def build(*args: object, **kwargs: object) -> Method:
        try:
            for key, option in options_of(function).items():
                if key in kwargs:
                    option.check(key, kwargs[key])
            made = function(*args, **kwargs)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
        if not isinstance(made, Method):
            raise ValueError(
                f"{name} gives a {type(made).__name__} where a Method is wanted; a method is a function(task, *, ...) "
                "that returns burnish.method.method(...)"
            )
        return replace(made, name=name)

    first_line = (function.__doc__ or "").strip().split("\n")[0]
    return Entry(name, build, summary=first_line)


def find(name: str) -> Entry:
    """A registered method, one of an installed package's entry points `burnish.methods`, or path/file.py:function."""
    if name not in METHODS and name in INDEX:
        import_module(INDEX[name])
    if name in METHODS:
        return METHODS[name]
    if ":" in name:
        return entry_of(_explained(_from_file(name), name))
    for point in entry_points(group="burnish.methods"):
        if point.name == name:
            return entry_of(point.load())
    near = difflib.get_close_matches(name, INDEX, 3, 0.5)
    hint = f"; did you mean {' or '.join(near)}?" if near else ""
    raise ValueError(
        f"there is no method {name!r}{hint} (`burnish methods` lists them; your own is path/to/file.py:function)"
    )


def load_all() -> None:
    """Import every module of a method, so that the table is whole: the library first, the best known at its head."""
    for module in dict.fromkeys(INDEX.values()):
        import_module(module)
    others = {name: entry for name, entry in METHODS.items() if name not in INDEX}
    ordered = {name: METHODS[name] for name in INDEX} | others
    METHODS.clear()
    METHODS.update(ordered)


def _explained(call: Callable[..., Any], what: str) -> Callable[..., Any]:
    """The same call, in which any error of the user's code is one sentence with its place (--debug: the traceback)."""

    @functools.wraps(call)
    def explained(*args: object, **kwargs: object) -> object:
        try:
            return call(*args, **kwargs)
        except (ValueError, KeyboardInterrupt):
            raise
        except BaseException as error:  # SystemExit too: a file that ends Python must not end the command in silence
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
            place = f" at {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
            raise ValueError(f"{what} raised {type(error).__name__}: {said(error)}{place}; fix it") from error

    return explained


def _from_file(spec: str) -> Recipe:
    path, _, name = spec.rpartition(":")
    file = Path(path)
    if not file.is_file():
        raise ValueError(f"there is no file {path!r} to take the method {name!r} from; write path/to/file.py:function")
    loader = importlib.util.spec_from_file_location(file.stem, file)
    if loader is None or loader.loader is None:
        raise ValueError(f"{path!r} is no Python file to take the method {name!r} from; write path/to/file.py:function")
    module = importlib.util.module_from_spec(loader)
    sys.modules[file.stem] = module
    _explained(loader.loader.exec_module, path)(module)
    function = getattr(module, name, None)
    if not callable(function):
        there = ", ".join(key for key in vars(module) if not key.startswith("_"))
        raise ValueError(f"{path} has no function {name!r}; it has {there or 'nothing'}")
    return cast(Recipe, function)
