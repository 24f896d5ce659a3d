"""Read the fields of a claim file's mappings: each of one type, and none that is not known."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Fields:
    """A mapping of the file, with the place of it for messages."""

    where: str
    values: Mapping[str, object]

    @classmethod
    def of(cls, where: str, stored: object, known: Collection[str] = ()) -> Fields:
        """The fields of a value, which must be a mapping; `known`: all that there may be, if not anything."""
        if not isinstance(stored, Mapping):
            raise ValueError(f"{where} should hold lines `name: value`, not {_said(stored)}")
        values = {str(key): value for key, value in stored.items()}
        for key in values:
            if known and key not in known:
                near = difflib.get_close_matches(key, list(known), 1, 0.5)
                hint = f"did you mean {near[0]!r}?" if near else f"it may have {', '.join(known)}"
                raise ValueError(f"{where} has {key!r}, which is not known there; {hint}")
        return cls(where, values)

    def text(self, key: str, default: str | None = None) -> str:
        value = self.values.get(key, default)
        if value is None or isinstance(value, Mapping | list):
            raise ValueError(f"{self.where} needs `{key}:` with a text" + (f", not {_said(value)}" if value else ""))
        return " ".join(str(value).split())

    def number(self, key: str, default: float | None = None) -> float:
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{self.where} needs `{key}:` with a number" + (f", not {_said(value)}" if value else ""))
        return float(value)

    def whole(self, key: str, default: int, least: int = 1) -> int:
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise ValueError(f"{self.where}: `{key}` is {_said(value)}; it must be a whole number of at least {least}")
        return value

    def optional(self, key: str) -> float | None:
        return self.number(key) if key in self.values else None

    def texts(self, key: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        """A list of texts; one text is a list of one."""
        value = self.values.get(key, list(default))
        listed = value if isinstance(value, list) else [value]
        if any(isinstance(one, Mapping | list) or one is None for one in listed):
            raise ValueError(f"{self.where}: `{key}` should be a list of texts")
        return tuple(" ".join(str(one).split()) for one in listed)

    def yes(self, key: str, default: bool) -> bool:
        value = self.values.get(key, default)
        if not isinstance(value, bool):
            raise ValueError(f"{self.where}: `{key}` is {_said(value)}; it must be true or false")
        return value


def _said(value: object) -> str:
    return repr(value)[:60]
