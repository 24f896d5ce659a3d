"""What an import knows while it works: the options of theirs, ours so far, and one line for each field of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from burnish.config.words import normalised

Flat = dict[str, Any]
Kind = Literal["carried", "carried differently", "not carried"]
CARRIED: Kind = "carried"
CHANGED: Kind = "carried differently"
LEFT: Kind = "not carried"


class Skip(Exception):
    """A value without counterpart; its text is the reason."""


class Same(Exception):
    """A value that needs no option, because burnish does the same without; its text says so."""


class Differs(Exception):
    """A value that burnish chooses by itself; its text says how."""


class Unread:
    """A value that is computed while a script runs; the text is its expression."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Line:
    """What became of one field: carried, carried differently or not carried; and how, or why."""

    name: str
    value: object
    kind: Kind
    text: str


@dataclass
class Given:
    """A file as it was read.

    flat     the fields, nested ones by dotted names
    library  where the file says it: Unsloth, TRL, verl, LLaMA-Factory, Axolotl
    method   the word of the trainer ("grpo"), where a class or a command says it
    devices  processes of the launch command, where one is in the file
    rewards  the source of reward functions, by name
    lines    what was decided while reading
    sees     whether a script loads a class of models that read pictures
    """

    flat: Flat = field(default_factory=dict)
    library: str | None = None
    method: str | None = None
    devices: int | None = None
    rewards: dict[str, str] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)
    sees: bool = False


@dataclass
class Draft:
    """The import of one file: `carry`, `same` and `leave` say of each field what becomes of it, once."""

    given: Given
    library: str
    folder: Path
    method: str = ""
    known: frozenset[str] = frozenset()
    options: Flat = field(default_factory=dict)
    lines: dict[str, Line] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    rewards_file: str | None = None  # where reward functions of the script will be written

    @property
    def flat(self) -> Flat:
        return self.given.flat

    def named(self, *names: str) -> str | None:
        """The first of these fields that has a value; Axolotl keeps TRL's below `trl`."""
        for name in names:
            for key in (name, f"trl.{name}"):
                if self.flat.get(key) is not None and not isinstance(self.flat[key], Unread):
                    return key
        return None

    def value(self, *names: str, default: object = None) -> Any:
        key = self.named(*names)
        return default if key is None else self.flat[key]

    def said(self, name: str, kind: Kind, text: str) -> None:
        if name in self.flat and name not in self.lines:
            self.lines[name] = Line(name, self.flat[name], kind, text)

    def carry(self, name: str | None, ours: str, value: object, how: str = "") -> None:
        """Set our option; `how` where it is not the same thing under another name."""
        self.options[ours] = value
        if name is not None:
            self.said(name, CHANGED if how else CARRIED, f"{ours}: {how}" if how else ours)

    def same(self, name: str | None, why: str) -> None:
        if name is not None:
            self.said(name, CARRIED, why)

    def changed(self, name: str | None, how: str) -> None:
        if name is not None:
            self.said(name, CHANGED, how)

    def leave(self, name: str | None, why: str) -> None:
        if name is not None:
            self.said(name, LEFT, why)


def flattened(given: Mapping[str, object], prefix: str = "") -> Flat:
    """Nested mappings as dotted names: {"data": {"seed": 1}} is {"data.seed": 1}."""
    flat: Flat = {}
    for key, value in given.items():
        name = f"{prefix}{normalised(str(key))}"
        flat |= flattened(value, f"{name}.") if isinstance(value, dict) and value else {name: value}
    return flat


def truth(value: object) -> bool:
    """A switch, as YAML, a shell or Hydra write it."""
    return value is True or str(value).strip().lower() in ("true", "1", "yes", "on")
