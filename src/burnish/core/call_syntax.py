"""Rewards by name in text: `f1`, `alp(beta=1e-4)`, `rm(runs/a/model)*0.5`; several with commas between them.

Arguments are Python literals; what is none (a path, a word) is text.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from burnish.core.option import options_of

_CALL = re.compile(r"([a-z][a-z0-9_]*)\s*(?:\((.*)\))?", re.DOTALL)
_KEYWORD = re.compile(r"\s*([a-z_][a-z0-9_]*)\s*=(?!=)(.*)", re.DOTALL)


@dataclass(frozen=True)
class Call:
    """A name with arguments."""

    name: str
    positional: tuple[Any, ...] = ()
    named: dict[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """As `read_call` reads it."""
        words = [*map(repr, self.positional), *(f"{key}={value!r}" for key, value in self.named.items())]
        return f"{self.name}({', '.join(words)})" if words else self.name


def split_outside(text: str, separator: str = ",") -> list[str]:
    """The pieces between separators that stand outside of brackets and quotes, without spaces around them."""
    pieces, depth, quote, start = [], 0, "", 0
    for i, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == separator and not depth:
            pieces.append(text[start:i])
            start = i + 1
    if depth or quote:
        raise ValueError(f"{text!r} has a bracket or a quote that is not closed; write name(option=value)")
    return [piece.strip() for piece in (*pieces, text[start:]) if piece.strip()]


def read_call(text: str) -> Call | None:
    """The call that a text is; None where it is none (the path of a file)."""
    match = _CALL.fullmatch(text.strip())
    if match is None:
        return None
    positional: list[object] = []
    named: dict[str, Any] = {}
    for piece in split_outside(match[2] or ""):
        keyword = _KEYWORD.fullmatch(piece)
        if keyword:
            named[keyword[1]] = _value(keyword[2].strip())
        else:
            positional.append(_value(piece))
    return Call(match[1], tuple(positional), named)


def bound(call: Call, function: Callable[..., object], skip: int = 0) -> dict[str, Any]:
    """The arguments of a call by name, for a function whose first `skip` parameters are not the user's.

    Raises ValueError for arguments that it does not take, and for values outside of the range of their options.
    """
    parameters = list(inspect.signature(function).parameters.values())[skip:]
    signature = inspect.Signature(parameters)
    try:
        bound_call = signature.bind(*call.positional, **call.named)
    except TypeError as error:
        raise ValueError(f"{call.text()}: {error}; its options are {call.name}{signature}") from None
    arguments: dict[str, Any] = {}
    for name, value in bound_call.arguments.items():  # *paths arrive as one tuple
        if signature.parameters[name].kind is inspect.Parameter.VAR_KEYWORD:
            arguments |= value
        else:
            arguments[name] = value
    for key, option in options_of(function).items():
        if key in arguments:
            option.check(f"{call.name}: {key}", arguments[key])
    return arguments


def _value(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
