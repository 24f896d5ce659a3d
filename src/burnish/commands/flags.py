"""Words on the command line become values: --name value, --name=value, --name and --no-name.

The options of a command are the fields of a dataclass, with their help as the text under each field; a method's own
are its signature. Values of both go through `coerce`, which also reads YAML, so they are refused in the same words.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import functools
import inspect
import itertools
import re
import textwrap
import types
import typing
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from burnish.run.values import coerce

if TYPE_CHECKING:
    from rich.table import Table

    from burnish.methods.table import Entry

_T = TypeVar("_T")
_TRUTH = ("true", "false", "yes", "no")
_COMMON = {
    "n": "Replies sampled for each prompt.",
    "temperature": "The temperature at which replies are sampled.",
    "eps": "How far the probability ratio may move before it is clipped.",
    "updates": "Updates on each batch.",
    "epochs": "Updates on each batch.",
    "minibatches": "Updates that one walk over the batch is split into.",
    "reward_model": "A reward model's directory, in place of the task's own verifier.",
    "teacher": "The teacher: a model's name or directory, with the student's tokenizer.",
    "critic_lr": "Multiplies the learning rate for the critic.",
    "gamma": "The discount of later rewards.",
}


class _Bare:
    """The value of a flag that was given none."""


BARE = _Bare()


@dataclass(frozen=True)
class Flag:
    """One flag, for people to read."""

    name: str
    kind: str
    default: str
    help: str


def split(words: list[str], booleans: Collection[str]) -> tuple[list[str], dict[str, Any]]:
    """Plain words, and flags by name (dashes become underscores); `booleans` are the flags that take no value."""
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
        if equals:
            flags[name] = value
        elif name in booleans:
            flags[name] = rest.popleft() if rest and rest[0].lower() in _TRUTH else True
        elif name.removeprefix("no_") in booleans:
            flags[name.removeprefix("no_")] = False
        else:
            flags[name] = rest.popleft() if rest and not rest[0].startswith("--") else BARE
    return plain, flags


def valued(flags: dict[str, Any], known: Collection[str]) -> dict[str, Any]:
    """The same flags; a known one that was given no value is refused. Unknown ones are refused by those who know more."""
    for name, value in flags.items():
        if value is BARE and name in known:
            raise ValueError(f"--{dashed(name)} needs a value: --{dashed(name)} VALUE")
    return {name: None if value is BARE else value for name, value in flags.items()}


def read(kind: type[_T], command: str, words: list[str], *, plain: int = 0) -> tuple[list[str], _T] | None:
    """The plain words (at most `plain`) and the options of a command; None once its --help has been printed."""
    kinds = typing.get_type_hints(kind)
    said, flags = split(words, {"help", *booleans_of(kinds)})
    if flags.pop("help", False):
        print_help(kind, command)
        return None
    if len(said) > plain:
        raise ValueError(
            f"`burnish {command}` does not know what to do with {said[plain]!r}; see burnish {command} --help"
        )
    for name in flags:
        if name not in kinds:
            near = difflib.get_close_matches(name, kinds, 1, 0.5)
            hint = f"; did you mean --{dashed(near[0])}?" if near else ""
            raise ValueError(
                f"`burnish {command}` has no flag --{dashed(name)}{hint} (burnish {command} --help lists them)"
            )
    values = {name: coerce(name, value, kinds[name]) for name, value in valued(flags, kinds).items()}
    return said, kind(**values)


def print_help(kind: type, command: str) -> None:
    """What a command does, how it is called, its flags: from the dataclass of its options."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    console.print(Text(inspect.cleandoc(kind.__doc__ or "")))
    console.print(f"\n[bold]Flags of burnish {command}[/]")
    console.print(table(flags_of(kind)))


def booleans_of(kinds: dict[str, Any]) -> set[str]:
    return {name for name, kind in kinds.items() if kind is bool}


def flags_of(kind: Any) -> list[Flag]:
    """The flags that the fields of a dataclass make."""
    kinds, docs = typing.get_type_hints(kind), field_docs(kind)
    return [
        Flag(f.name, spoken(kinds[f.name]), _default(f.default), docs.get(f.name, "")) for f in dataclasses.fields(kind)
    ]


def flags_of_method(entry: Entry) -> list[Flag]:
    """The flags that a method's signature makes."""
    from burnish.run.config import method_fields, method_types

    kinds, doc = method_types(entry), inspect.getdoc(entry.build) or ""
    return [
        Flag(name, spoken(kinds.get(name, str)), _default(p.default), _argument_help(name, doc))
        for name, p in method_fields(entry).items()
    ]


def table(flags: list[Flag]) -> Table:
    """The flags as a table: name, type, default, help."""
    from rich.table import Table
    from rich.text import Text

    found = Table(box=None, show_header=False, padding=(0, 2, 0, 0), pad_edge=False)
    found.add_column(style="cyan", no_wrap=True)
    found.add_column(style="dim", no_wrap=True)
    found.add_column(no_wrap=True, max_width=14)
    found.add_column()
    for flag in flags:
        found.add_row(f"  --{dashed(flag.name)}", flag.kind, Text(flag.default), Text(flag.help.replace("`", "")))
    return found


@functools.cache
def field_docs(kind: type) -> dict[str, str]:
    """The string under each field of a dataclass, and of the dataclasses it extends."""
    body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    assert isinstance(body, ast.ClassDef)
    extended = [field_docs(base) for base in kind.__bases__ if dataclasses.is_dataclass(base)]
    own = {
        field.target.id: " ".join(str(text.value.value).split())
        for field, text in itertools.pairwise(body.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }  # fmt: skip
    return {name: text for docs in (*extended, own) for name, text in docs.items()}


def spoken(kind: Any) -> str:
    """A type, as flags are described: int, number, text, on/off."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return " or ".join(spoken(one) for one in typing.get_args(kind) if one is not type(None))
    return {int: "int", float: "number", str: "text", bool: "on/off"}.get(kind, str(getattr(kind, "__name__", kind)))


def dashed(name: str) -> str:
    return name.replace("_", "-")


def _default(value: Any) -> str:
    if value is inspect.Parameter.empty or value is dataclasses.MISSING:
        return "needed"
    if isinstance(value, bool):
        return "on" if value else "off"
    return "-" if value is None or value == "" else f"{value:g}" if isinstance(value, float) else str(value)


def _argument_help(name: str, doc: str) -> str:
    """What the docstring says after `name:`, or what the name always means, or the line that uses it."""
    prose = " ".join(doc.split())
    said = re.search(rf"(?<![\w,] ){name}: (.+?)(?:[.;] |[.;]?$)", prose)
    if said:
        return said[1][0].upper() + said[1][1:].rstrip(".") + "."
    return _COMMON.get(name) or _around(name, doc)


def _around(name: str, doc: str) -> str:
    """The words around the first use of a name after the headline, on one line."""
    for line in doc.splitlines()[1:]:
        found = re.search(rf"(?<!\w){name}(?!\w)", line)
        if found:
            start = line.rfind(" ", 0, max(1, found.start() - 30)) + 1 if found.start() > 30 else 0
            end = line.find(" ", found.end() + 30)
            left, right = "... " if start else "", " ..." if end > 0 else ""
            return f"{left}{line[start : end if end > 0 else None].strip()}{right}"
    return ""
