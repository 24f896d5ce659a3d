"""JSON by a schema as a grammar that is read character by character: which texts may go on, and how.

A state is the set of stacks of what may still come. The language is JSON without line ends, with at most one space
after a colon or a comma; properties stand in the order of the schema, and numbers have at most 15 digits before and
after the point. A schema that says more than a grammar can hold is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Union

MOST_ITEMS, MOST_NODES = 64, 20_000
REFUSED = (
    *("pattern", "not", "if", "patternProperties", "propertyNames", "uniqueItems", "contains", "dependentRequired"),
    *("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minProperties", "maxProperties"),
)


@dataclass(frozen=True, eq=False)
class Chars:
    """One character of a class."""

    takes: Callable[[str], bool]
    text: bool = False  # whether it is any character of a string


@dataclass(frozen=True, eq=False)
class Sequence:
    """Its parts, one after the other."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Choice:
    """One of its options."""

    options: tuple[Node, ...]


@dataclass(frozen=True, eq=False)
class Repeat:
    """Its part, any number of times."""

    part: Node


@dataclass(frozen=True, eq=False)
class Later:
    """A node that is made when it is reached: schemas refer to themselves."""

    make: Callable[[], Node]


Node = Union[Chars, Sequence, Choice, Repeat, Later]  # noqa: UP007 - a name that its own parts use
Stack = tuple[Node, "Stack"] | None  # what comes next, and after it; None: the end
State = frozenset[Stack]


def literal(text: str) -> Node:
    return Sequence(tuple(Chars(letter.__eq__) for letter in text))


def maybe(part: Node) -> Node:
    return Choice((part, Sequence(())))


def up_to(part: Node, most: int) -> Node:
    """The part, at most so many times."""
    node: Node = Sequence(())
    for _ in range(most):
        node = maybe(Sequence((part, node)))
    return node


_DIGIT = Chars(lambda letter: letter in "0123456789")
_HEX = Chars(lambda letter: letter in "0123456789abcdefABCDEF")
_ESCAPE = Choice(
    (
        Chars(lambda letter: letter in '"\\/bfnrt'),
        Sequence((Chars("u".__eq__), Chars(lambda letter: letter in "0123456789abcefABCEF"), _HEX, _HEX, _HEX)),
    )
)  # no surrogates
_LETTER = Chars(lambda letter: letter >= " " and letter not in '"\\\x7f' and not "\ud800" <= letter <= "\udfff", True)
_LETTERS = Repeat(Choice((_LETTER, Sequence((Chars("\\".__eq__), _ESCAPE)))))
STRING = Sequence((Chars('"'.__eq__), _LETTERS, Chars('"'.__eq__)))
INTEGER = Sequence(
    (
        maybe(Chars("-".__eq__)),
        Choice((Chars("0".__eq__), Sequence((Chars(lambda letter: letter in "123456789"), up_to(_DIGIT, 14))))),
    )
)
_EXPONENT = Sequence(
    (Chars(lambda letter: letter in "eE"), maybe(Chars(lambda letter: letter in "+-")), _DIGIT, maybe(_DIGIT))
)
NUMBER = Sequence((INTEGER, maybe(Sequence((Chars(".".__eq__), _DIGIT, up_to(_DIGIT, 14)))), maybe(_EXPONENT)))
_SPACE = maybe(Chars(" ".__eq__))
_COMMA, _COLON = Sequence((Chars(",".__eq__), _SPACE)), Sequence((Chars(":".__eq__), _SPACE))


def listed(item: Node, start: str, end: str, least: int = 0, most: int | None = None) -> Node:
    """Items between brackets, with commas."""
    more = Sequence((_COMMA, item))
    if most == 0:
        return literal(start + end)
    firsts = [item] + [more] * (max(least, 1) - 1)
    rest = Repeat(more) if most is None else up_to(more, most - max(least, 1))
    inner: Node = Sequence((*firsts, rest))
    return Sequence((literal(start), inner if least else maybe(inner), literal(end)))


@cache
def _any() -> Node:
    member = Sequence((STRING, _COLON, Later(_any)))
    return Choice(
        (
            STRING,
            NUMBER,
            literal("true"),
            literal("false"),
            literal("null"),
            listed(Later(_any), "[", "]"),
            listed(member, "{", "}"),
        )
    )


OBJECT = listed(Sequence((STRING, _COLON, Later(_any))), "{", "}")


class Grammar:
    """The grammar of a schema; ValueError where it cannot be one."""

    def __init__(self, schema: object) -> None:
        self._defs = _mapping(_mapping(schema).get("$defs", _mapping(schema).get("definitions")))
        self._made: dict[str, Node] = {}
        self._count = 0
        self.start = closure((self.node(schema), None))

    def node(self, schema: object) -> Node:
        """The node of a schema."""
        self._count += 1
        if self._count > MOST_NODES:
            raise ValueError("the JSON schema is too large")
        if schema is True or schema == {}:
            return _any()
        if not isinstance(schema, Mapping):
            raise ValueError(f"a JSON schema must be an object, not {str(schema)[:40]!r}")
        for key in REFUSED:
            if key in schema:
                raise ValueError(f"the JSON schema has {key!r}, which decoding cannot hold to; leave it out")
        if isinstance(reference := schema.get("$ref"), str):
            return self._referred(reference)
        for key in ("anyOf", "oneOf"):
            if isinstance(options := schema.get(key), list) and options:
                return Choice(tuple(map(self.node, options)))
        if isinstance(both := schema.get("allOf"), list) and both:
            if len(both) != 1:
                raise ValueError("the JSON schema has 'allOf' with several parts; write one schema")
            return self.node(both[0])
        if "const" in schema or isinstance(schema.get("enum"), list):
            values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema["const"]]
            return Choice(tuple(literal(json.dumps(value, ensure_ascii=False)) for value in values))
        return self._typed(schema)

    def _typed(self, schema: Mapping[str, object]) -> Node:
        kind = schema.get("type", "object" if "properties" in schema else None)
        if isinstance(kind, list):
            return Choice(tuple(self.node({**schema, "type": one}) for one in kind))
        plain = {"string": STRING, "integer": INTEGER, "number": NUMBER, "null": literal("null"), None: None}
        if kind == "string" and ("minLength" in schema or "maxLength" in schema):
            return _text(_count(schema, "minLength") or 0, _count(schema, "maxLength"))
        if kind == "boolean":
            return Choice((literal("true"), literal("false")))
        if kind == "array":
            items = self.node(schema.get("items", {}))
            return listed(items, "[", "]", _count(schema, "minItems") or 0, _count(schema, "maxItems"))
        if kind == "object":
            return self._object(schema)
        if not isinstance(kind, str | None) or kind not in plain:
            raise ValueError(f"the JSON schema has the type {str(kind)[:40]!r}, which JSON has not")
        return plain[kind] or _any()

    def _object(self, schema: Mapping[str, object]) -> Node:
        properties, required = _mapping(schema.get("properties")), schema.get("required")
        if not properties:
            values = schema.get("additionalProperties", True)
            return literal("{}") if values is False else listed(Sequence((STRING, _COLON, self.node(values))), "{", "}")
        wanted = set(map(str, required)) if isinstance(required, list) else set()
        after: dict[bool, Node] = {True: Sequence(()), False: Sequence(())}  # by whether no member stands before
        for key, value in reversed(list(properties.items())):
            member = Sequence((literal(json.dumps(key, ensure_ascii=False)), _COLON, self.node(value), after[False]))
            first, later = member, Sequence((_COMMA, member))
            after = (
                {True: first, False: later}
                if key in wanted
                else {True: Choice((first, after[True])), False: Choice((later, after[False]))}
            )
        return Sequence((literal("{"), after[True], literal("}")))

    def _referred(self, reference: str) -> Node:
        name = reference.rpartition("/")[2]
        if name not in self._defs:
            raise ValueError(f"the JSON schema refers to {reference[:80]!r}, which it does not define")

        def make() -> Node:
            if name not in self._made:
                self._made[name] = self.node(self._defs[name])
            return self._made[name]

        return Later(make)


def closure(stack: Stack) -> State:
    """The stacks, each with a class of characters on top, that a stack stands for; None among them: it may end."""
    stacks: set[Stack] = set()
    seen: set[Stack] = set()
    open_ = [stack]
    while open_:
        one = open_.pop()
        if one in seen:
            continue
        seen.add(one)
        if one is None or isinstance(one[0], Chars):
            stacks.add(one)
            continue
        node, rest = one
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                rest = (part, rest)
            open_.append(rest)
        elif isinstance(node, Choice):
            open_ += [(option, rest) for option in node.options]
        elif isinstance(node, Repeat):
            open_ += [rest, (node.part, one)]
        else:
            assert isinstance(node, Later)
            open_.append((node.make(), rest))
    return frozenset(stacks)


@lru_cache(maxsize=1 << 16)
def after(state: State, letter: str) -> State:
    """The state after one more character; empty where it cannot come."""
    stacks: frozenset[Stack] = frozenset()
    for stack in state:
        if stack is not None and isinstance(stack[0], Chars) and stack[0].takes(letter):
            stacks |= closure(stack[1])
    return stacks


def after_text(state: State, text: str) -> State:
    """The state after a text."""
    for letter in text:
        if not state:
            break
        state = after(state, letter)
    return state


def in_string(state: State) -> bool:
    """Whether any further text of a string may come, however long."""
    return any(s is not None and s[0] is _LETTER and s[1] is not None and s[1][0] is _LETTERS for s in state)


def _text(least: int, most: int | None) -> Node:
    letter = Choice((_LETTER, Sequence((Chars("\\".__eq__), _ESCAPE))))
    rest = _LETTERS if most is None else up_to(letter, most - least)
    return Sequence((Chars('"'.__eq__), *[letter] * least, rest, Chars('"'.__eq__)))


def _count(schema: Mapping[str, object], key: str) -> int | None:
    value = schema.get(key)
    most = MOST_ITEMS if key.endswith("Items") else 1024
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ValueError(f"the JSON schema has {key} {str(value)[:40]}; decoding holds to 0 to {most}")
    return value


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
