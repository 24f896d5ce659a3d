"""Command-line parsing: --name value, --name=value, --name and --no-name.

The flags of a command are the fields of a dataclass; the string under each field is its help text. A method's own flags
are its signature, and the help texts are those of the types (burnish.core.option). Both use `coerce`, as YAML files
do, so that bad values give the same errors everywhere.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import re
import textwrap
import types
import typing
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from burnish.config.values import coerce, truth
from burnish.config.words import answer, nearest
from burnish.core.option import ANY, typed

if TYPE_CHECKING:
    from burnish.methods.table import Entry

_T = TypeVar("_T")


ALIASES = {"count": "tasks", "rows": "tasks"}  # earlier names of flags of commands, which help does not list
REPEATED = {"reward"}  # flags that may be given several times: their values are joined with commas


class _Bare:
    """Stands for the missing value of a flag without one."""


BARE = _Bare()


@dataclass(frozen=True)
class Flag:
    """One row of --help: a flag, its type, its default and its help text."""

    name: str
    kind: str
    default: str
    help: str


def split(words: list[str], booleans: Mapping[str, Collection[str]]) -> tuple[list[str], dict[str, Any]]:
    """Positional words, and flags by name (dashes become underscores).

    booleans: the flags that need no value, and what each may have as one besides true and false
    """
    plain: list[str] = []
    flags: dict[str, Any] = {}
    rest = deque("--help" if word == "-h" else word for word in words)
    while rest:
        word = rest.popleft()
        if not word.startswith("--"):
            if re.match("-[A-Za-z]", word):
                raise ValueError(f"{word!r} is not a flag; flags have two dashes: -{word}")
            plain.append(word)
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        before = flags.get(name) if name in REPEATED else None
        if equals:
            flags[name] = value
        elif name in booleans:
            given = rest and (truth(rest[0]) is not None or rest[0] in booleans[name])
            flags[name] = rest.popleft() if given else True
        elif name.removeprefix("no_") in booleans:
            flags[name.removeprefix("no_")] = False
        else:
            flags[name] = rest.popleft() if rest and not rest[0].startswith("--") else BARE
        if isinstance(before, str) and isinstance(flags[name], str):
            flags[name] = f"{before},{flags[name]}"
    return plain, flags


def valued(flags: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The same flags with None for a missing value; raise ValueError if a known flag has none.

    Callers reject unknown ones.
    """
    for name, value in flags.items():
        if value is BARE and name in known:
            raise ValueError(f"--{dashed(name)} needs a value: --{dashed(name)} VALUE")
    return {name: None if value is BARE else value for name, value in flags.items()}


def read(kind: type[_T], command: str, words: list[str], *, plain: int = 0) -> tuple[list[str], _T] | None:
    """The positional words (at most `plain`) and the options of a command; None after printing its --help."""
    kinds = typing.get_type_hints(kind, include_extras=True)
    positional, given = split(words, {"help": (), "help_all": (), **booleans_of(kinds)})
    flags = {name if name in kinds else _named_now(name, kinds): value for name, value in given.items()}
    helped = [coerce("help", flags.pop(name, False), bool) for name in ("help", "help_all")]
    if any(helped):
        print_help(kind, command)
        return None
    if len(positional) > plain:
        raise ValueError(
            f"`burnish {command}` does not know what to do with {positional[plain]!r}; see burnish {command} --help"
        )
    for name in flags:
        if name not in kinds:
            if ours := answer(name, kinds, flag=True):
                raise ValueError(f"burnish {command}: {ours}")
            raise ValueError(
                f"`burnish {command}` has no flag --{dashed(name)}{nearest(name, kinds, flag=True)} "
                f"(burnish {command} --help lists them)"
            )
    values = {name: coerce(name, value, kinds[name]) for name, value in valued(flags, kinds).items()}
    return positional, kind(**values)


def _named_now(name: str, kinds: Mapping[str, object]) -> str:
    """The present name of a command's flag."""
    now = ALIASES.get(name, name)
    return now if now in kinds else name


def print_help(kind: type, command: str) -> None:
    """Print a command's description, usage and flags, from the dataclass of its options."""
    from rich.text import Text

    from burnish.config.help import print_flags
    from burnish.util.terminal import stdout_console

    out = stdout_console()
    out.print(Text(inspect.cleandoc(kind.__doc__ or "")))
    flags = flags_of(kind)
    if flags:
        out.print(f"\n[bold]Flags of burnish {command}[/]")
        print_flags(out, flags)


def booleans_of(kinds: dict[str, object]) -> dict[str, tuple[str, ...]]:
    """The names whose flags need no value: of type bool, or with a choice that is meant then; and the choices."""
    options = {name: typed(kind) for name, kind in kinds.items()}
    return {name: option.choices for name, (kind, option) in options.items() if kind is bool or option.bare}


def flags_of(kind: Any) -> list[Flag]:
    """The flags of a dataclass: one per field, its own before those that it shares with other commands."""
    kinds, docs = typing.get_type_hints(kind), field_docs(kind)
    return [
        Flag(f.name, type_name(kinds[f.name]), _default(f.default), docs.get(f.name, ""))
        for f in sorted(dataclasses.fields(kind), key=lambda f: f.name not in kind.__annotations__)
    ]


def flags_of_method(entry: Entry) -> list[Flag]:
    """The flags of a method: one per argument of its function."""
    from burnish.config.options import method_fields, method_types

    kinds = {name: typed(kind) for name, kind in method_types(entry).items()}
    return [
        Flag(name, type_name(kind), _default(p.default), option.help)
        for name, p in method_fields(entry).items()
        for kind, option in (kinds.get(name, (str, ANY)),)
    ]


@functools.cache
def field_docs(kind: type) -> dict[str, str]:
    """The string under each field of a dataclass and of its base dataclasses."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    extended = [field_docs(base) for base in kind.__bases__ if dataclasses.is_dataclass(base)]
    own: dict[str, str] = {}
    for field, text in itertools.pairwise(body.body):
        if not (isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)):
            continue
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            own[field.target.id] = " ".join(str(text.value.value).split())
    return {name: text for docs in (*extended, own) for name, text in docs.items()}


def type_name(kind: Any) -> str:
    """The name of a type in help texts: int, number, text, on/off."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return " or ".join(type_name(member) for member in typing.get_args(kind) if member is not type(None))
    if typing.get_origin(kind) is typing.Literal:
        return "text"
    return {int: "int", float: "number", str: "text", bool: "on/off"}.get(kind, str(getattr(kind, "__name__", kind)))


def dashed(name: str) -> str:
    return name.replace("_", "-")


def _default(value: object) -> str:
    if value is inspect.Parameter.empty or value is dataclasses.MISSING:
        return "needed"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "-" if value is None or value == "" else f"{value:g}" if isinstance(value, float) else str(value)
