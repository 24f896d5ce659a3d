"""Options that carry their help text and valid range in their type.

    Temperature = Annotated[float, Option("The temperature at which replies are sampled.", above=0)]

A method's signature, the options of every run and the flags of a command use such types. `--help`, `burnish show` and
the pages in docs/methods print the help; flags, YAML files and Python calls are checked against the range.
"""

from __future__ import annotations

import functools
import inspect
import math
import types
import typing
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Annotated, Literal


@dataclass(frozen=True)
class Option:
    """The help text of an option and the values that are valid; the metadata of a typing.Annotated type.

    unlimited  infinity is valid and means "no limit"
    choices    the only valid values, where they are the names of a table; else the type is a Literal, which sets them
    reason     why the range is what it is, for the message about a value outside of it
    bare       the choice that a switch means: its flag without a value, or true; false is then the first choice
    None, and a schedule (any callable), are always within the range.
    """

    help: str = ""
    _: KW_ONLY
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    unlimited: bool = False
    choices: tuple[str, ...] = ()
    bare: str = ""
    reason: str = ""

    def check(self, name: str, value: object) -> None:
        """Raise ValueError, with the option's name, the value and the range, if the value is not valid."""
        if self.choices and value is not None and value not in self.choices:
            raise ValueError(f"option {name!r} is {value!r}; it must be {_either(self.choices)}")
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return
        if math.isnan(value) or (math.isinf(value) and not (self.unlimited and value > 0)):
            raise ValueError(f"option {name!r} is {value}; it must be a finite number")
        if not self._inside(value):
            reason = f": {self.reason}" if self.reason else ""
            raise ValueError(f"option {name!r} is {value}; it must be {self.range()}{reason}")

    def range(self) -> str:
        """The range in words: "at least 1", "above 0 and at most 1"; empty if every number is valid."""
        if self.at_least is not None and self.at_most is not None:
            return f"between {self.at_least:g} and {self.at_most:g}"
        bounds = {"at least": self.at_least, "above": self.above, "at most": self.at_most, "below": self.below}
        return " and ".join(f"{words} {bound:g}" for words, bound in bounds.items() if bound is not None)

    @property
    def limited(self) -> bool:
        """Whether it excludes any value."""
        return bool(self.choices or self.range())

    def _inside(self, value: float) -> bool:
        return not (
            (self.at_least is not None and value < self.at_least)
            or (self.above is not None and value <= self.above)
            or (self.at_most is not None and value > self.at_most)
            or (self.below is not None and value >= self.below)
        )


ANY = Option()


def typed(annotation: object) -> tuple[object, Option]:
    """A type without its Option, and the Option; ANY for a type without one. A Literal is a text with these choices."""
    plain, *metadata = typing.get_args(annotation) if typing.get_origin(annotation) is Annotated else (annotation,)
    option = next((item for item in metadata if isinstance(item, Option)), ANY)
    members = typing.get_args(plain) if typing.get_origin(plain) in (typing.Union, types.UnionType) else (plain,)
    texts = tuple(text for one in members if typing.get_origin(one) is Literal for text in typing.get_args(one))
    if not texts:
        return plain, option
    return (str | None if type(None) in members else str), replace(option, choices=texts)


@functools.cache
def options_of(function: Callable[..., object]) -> dict[str, Option]:
    """The Options in a function's signature, by the argument's name."""
    hints = typing.get_type_hints(inspect.unwrap(function), include_extras=True)
    options = {name: typed(annotation)[1] for name, annotation in hints.items()}
    return {name: option for name, option in options.items() if option is not ANY}


def _either(choices: tuple[str, ...]) -> str:
    return " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
