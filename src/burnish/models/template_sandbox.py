"""The Jinja sandbox in which chat templates are rendered: the helpers that transformers gives them, and limits on
their work.

A template comes with a model directory, so it is untrusted. Jinja's sandbox keeps it from reaching Python; the limits
here keep it from running for ever or filling the memory: a render takes at most TURNS loop turns, and makes texts of
at most LONGEST characters (more if the messages are longer).
"""

from __future__ import annotations

import functools
import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

TURNS = 1_000_000  # loop turns in one render
CALL = 10  # turns that a call counts for, because it takes as long
LONGEST = 16 << 20  # characters of one text, beside four times the characters of the messages
WIDEST = 100_000  # the largest number that a call or a filter takes, as Jinja's sandbox has it for range
ALL = 16  # times as many characters in all the texts of one render

_WIDE = re.compile(r"%[^a-zA-Z%]*\d{7}|\{[^{}]*\d{7}")  # a format with a width of millions


class TooMuch(TemplateError):
    """A template that does not come to an end, or writes without end."""


class _Spent(threading.local):
    """The work of the render that is under way in this thread."""

    turns: int = 0
    made: int = 0
    room: int = LONGEST


class Sandbox(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with limits on loops, calls and sizes."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
        self.spent = _Spent()
        self.filters = {name: self._limited(name, function) for name, function in self.filters.items()}
        self.filters.update(tojson=self._limited("tojson", _as_json), _counted=self._counted, _joined=self._joined)
        self.globals.update(raise_exception=_refuse, strftime_now=_now)

    def render(self, template: Template, values: dict[str, object], length: int) -> str:
        """What a template makes of these values, whose texts have `length` characters."""
        return "".join(self.pieces(template, values, length))

    def pieces(self, template: Template, values: dict[str, object], length: int) -> Iterator[str]:
        """The same, piece by piece: each when it is written."""
        spent = self.spent
        spent.turns, spent.made, spent.room = 0, 0, LONGEST + 4 * length
        for piece in template.generate(values):
            self._fits(piece)
            yield piece

    def call(self, context: Context, function: object, /, *args: object, **kwargs: object) -> object:
        self._turn(CALL)
        self._small(args, kwargs)
        self._format(getattr(getattr(function, "__wrapped__", None), "__self__", None))  # str.format, as Jinja wraps it
        self._grows(getattr(function, "__name__", ""), (getattr(function, "__self__", None), *args))
        return self._fits(super().call(context, function, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        if operator == "**":
            self._number(left, 10**6)
            self._number(right, 64)
        elif operator == "*":
            size = next((len(x) for x in (left, right) if hasattr(x, "__len__")), None)
            times = next((x for x in (left, right) if isinstance(x, int)), 1)
            if size is not None and size * times > self.spent.room:
                raise TooMuch("it repeats a text too often")
        elif operator == "%":
            self._format(left)
        return self._fits(super().call_binop(context, operator, left, right))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """The template with every loop counted, and every ~ limited."""
        parsed = super()._parse(source, name, filename)
        for loop in parsed.find_all(nodes.For):
            loop.iter = filtered(loop.iter, "_counted", self)
        visited: nodes.Template = _Concats().visit(parsed, self)
        return visited

    def _counted(self, items: Iterable[object]) -> Iterator[object]:
        for item in items:
            self._turn()
            yield item

    def _joined(self, parts: list[object]) -> str:
        return str(self._fits("".join(map(str, parts))))

    def _limited(self, name: str, function: Callable[..., object]) -> Callable[..., object]:
        """A filter that takes no large numbers and makes no large texts. wraps() keeps Jinja's marks on it."""

        @functools.wraps(function)
        def limited(*args: object, **kwargs: object) -> object:
            self._turn()
            self._small(args, kwargs)
            given = [x for x in args if not isinstance(x, nodes.EvalContext | Context | Sandbox)]
            self._format(given[0] if given else None)
            self._grows(name, (*given, *kwargs.values()))
            return self._fits(function(*args, **kwargs))

        return limited

    def _turn(self, turns: int = 1) -> None:
        self.spent.turns += turns
        if self.spent.turns > TURNS:
            raise TooMuch(f"it takes more than {TURNS:,} loop turns")

    def _small(self, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        for value in (*args, *kwargs.values()):
            self._number(value, WIDEST)

    def _grows(self, name: str, given: tuple[object, ...]) -> None:
        """Refuse a text that would be too long, before it is made. given: the value itself, then the arguments."""
        texts = [x for x in given if isinstance(x, str)]
        size = 0
        if name == "replace" and len(texts) > 2:
            size = texts[0].count(texts[1]) * len(texts[2])
        elif name == "join" and texts:
            size = max((len(x) for x in given if hasattr(x, "__len__") and x is not texts[0]), default=0) * len(
                texts[0]
            )
        elif name == "indent" and texts:
            size = texts[0].count("\n") * max((x for x in given if isinstance(x, int)), default=0)
        if size > self.spent.room:
            raise TooMuch(f"it makes texts of more than {self.spent.room:,} characters")

    def _format(self, value: object) -> None:
        if isinstance(value, str) and _WIDE.search(value):
            raise TooMuch("it formats text with too large a width")

    def _number(self, value: object, most: int) -> None:
        if isinstance(value, int | float) and not abs(value) <= most:
            raise TooMuch("it computes with too large a number")

    def _fits(self, made: object) -> object:
        if isinstance(made, str | list | tuple | dict):
            self.spent.made += len(made)
            if len(made) > self.spent.room or self.spent.made > ALL * self.spent.room:
                raise TooMuch(f"it makes texts of more than {self.spent.room:,} characters")
        return made


class _Generation(Extension):
    """{% generation %}: marks what the model says, which is the same text."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class _Concats(NodeTransformer):
    """Puts the limited `_joined` in the place of Jinja's own ~."""

    def visit_Concat(self, node: nodes.Concat, room: Sandbox) -> nodes.Node:
        self.generic_visit(node, room)
        parts = nodes.List(node.nodes, lineno=node.lineno)
        parts.set_environment(room)
        return filtered(parts, "_joined", room)


def filtered(node: Any, name: str, room: Sandbox) -> nodes.Filter:
    """The value of a node, through a filter."""
    made = nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
    made.environment = room
    return made


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _as_json(x: object, ensure_ascii: bool = False, indent: int | None = None, **more: Any) -> str:
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, **more)


def _now(form: str) -> str:
    return datetime.now().strftime(form)
