"""Values between processes that do not trust each other: Python literals as JSON, and equality decided on this side.

`encode` may run in a process that a hostile program controls, so nothing is assumed about what it writes. `matches`
compares such text with a trusted value: its work is bounded by the size of the trusted value, and no method of a
foreign class is ever called.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Set
from decimal import Decimal
from fractions import Fraction

from burnish.util.json_types import Json

KIND, ITEMS = "t", "v"
LARGEST = 1 << 53  # larger integers are written in hexadecimal, which is read in linear time
LONGEST_NUMBER = 400  # characters of a Decimal
DEEPEST = 200  # nesting


class NotALiteral(ValueError):
    """A value that is no composition of literals."""


def encode(value: object, other: Callable[[object, int], Json] | None = None, depth: int = 0) -> Json:
    """A value as JSON-able data; `other` encodes objects that are no literals, else NotALiteral is raised."""
    if depth > DEEPEST:
        raise NotALiteral(f"nested deeper than {DEEPEST}")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, int):
        plain = int(value)
        return plain if -LARGEST < plain < LARGEST else {KIND: "int", ITEMS: hex(plain)}
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    for kind, types in _SEQUENCES.items():
        if isinstance(value, types):
            items = [encode(item, other, depth + 1) for item in value]
            return items if kind == "list" else {KIND: kind, ITEMS: items}
    if isinstance(value, dict):
        pairs: list[Json] = [[encode(k, other, depth + 1), encode(v, other, depth + 1)] for k, v in value.items()]
        return {KIND: "dict", ITEMS: pairs}
    plain_form = _plain_form(value)
    if plain_form is not None:
        return plain_form
    if other is None:
        raise NotALiteral(f"{type(value).__name__} is not a literal")
    return other(value, depth)


_SEQUENCES: dict[str, tuple[type[list[object] | deque[object] | tuple[object, ...] | Set[object]], ...]] = {
    "list": (list, deque),
    "tuple": (tuple,),
    "set": (set,),
    "frozenset": (frozenset,),
}


def _plain_form(value: object) -> Json:
    """Bytes, complex numbers, ranges, decimals and fractions."""
    if isinstance(value, bytes | bytearray):
        return {KIND: "bytes", ITEMS: value.hex()}
    if isinstance(value, complex):
        return {KIND: "complex", ITEMS: [value.real, value.imag]}
    if isinstance(value, range):
        return {KIND: "range", ITEMS: [encode(value.start), encode(value.stop), encode(value.step)]}
    if isinstance(value, Decimal):
        return {KIND: "decimal", ITEMS: str(value)}
    if isinstance(value, Fraction):
        return {KIND: "fraction", ITEMS: [encode(value.numerator), encode(value.denominator)]}
    return None


def decode(data: Json, other: Callable[[str, Json], object] | None = None) -> object:
    """The value of encoded data; `other` decodes kinds that are not in this file. Raises NotALiteral for bad data."""
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list):
        return [decode(item, other) for item in data]
    if not isinstance(data, dict) or data.keys() != {KIND, ITEMS}:
        raise NotALiteral("not an encoded value")
    kind, items = data[KIND], data[ITEMS]
    try:
        return _decode_kind(_text(kind), items, other)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise NotALiteral(f"bad {kind!r:.40}: {error}"[:200]) from None


def _decode_kind(kind: str, items: Json, other: Callable[[str, Json], object] | None) -> object:
    if kind == "int":
        return int(_text(items), 16)
    if build := _COLLECTIONS.get(kind):
        return build(decode(item, other) for item in _list(items))
    if kind == "dict":
        pairs = map(_list, _list(items))
        return {decode(key, other): decode(value, other) for key, value in pairs}
    if kind == "bytes":
        return bytes.fromhex(_text(items))
    if kind == "complex":
        real, imaginary = map(_float, _list(items))
        return complex(real, imaginary)
    if kind == "range":
        return range(*map(_int, _list(items)))
    if kind == "decimal":
        text = _text(items)
        if len(text) > LONGEST_NUMBER:
            raise NotALiteral("bad decimal")
        number = Decimal(text)
        if number.is_finite() and abs(number.adjusted()) > LONGEST_NUMBER:
            raise NotALiteral("the decimal is too large")
        return number
    if kind == "fraction":
        numerator, denominator = map(_int, _list(items))
        return Fraction(numerator, denominator)
    if other is None:
        raise NotALiteral(f"unknown kind {kind!r:.40}")
    return other(kind, items)


_COLLECTIONS: dict[str, Callable[[Iterable[object]], object]] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise NotALiteral("not a text")
    return value


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise NotALiteral("not a list")
    return value


def _float(value: Json) -> float:
    if not isinstance(value, int | float):
        raise NotALiteral("not a number")
    return float(value)


def _int(value: Json) -> int:
    whole = decode(value)
    if not isinstance(whole, int):
        raise NotALiteral("not a whole number")
    return whole


def matches(expected: object, data: Json, *, tolerance: float = 0.0, tuples_as_lists: bool = False) -> bool:
    """Whether encoded data equals a trusted value, as `==` of Python decides it for literals, but for two values that
    are printed differently: True is not 1, and -0.0 is not 0.0 unless there is a tolerance. 1 is 1.0.

    tolerance        relative and absolute tolerance of floats
    tuples_as_lists  a tuple equals a list of the same items: expected values from JSON have no tuples
    """
    with contextlib.suppress(NotALiteral, RecursionError, TypeError, ValueError, OverflowError):
        return _Comparison(tolerance, tuples_as_lists).same(expected, data)
    return False


class _Comparison:
    def __init__(self, tolerance: float, tuples_as_lists: bool) -> None:
        self.tolerance, self.tuples_as_lists = tolerance, tuples_as_lists

    def same(self, expected: object, data: Json) -> bool:
        kind, items = _parts(data)
        if isinstance(expected, list | tuple):
            name = "list" if isinstance(expected, list) else "tuple"
            fits = kind == name or (self.tuples_as_lists and kind in ("list", "tuple"))
            return fits and len(items) == len(expected) and all(map(self.same, expected, items))
        if isinstance(expected, set | frozenset):
            if kind not in ("set", "frozenset") or len(items) != len(expected):
                return False
            members, matched = {member: member for member in expected}, set()
            for item in items:
                value = decode(item)
                if value not in members or not _alike(members[value], value):
                    return False
                matched.add(value)
            return len(matched) == len(expected)
        if isinstance(expected, dict):
            return kind == "dict" and len(items) == len(expected) and self._same_dict(expected, items)
        if kind in ("list", "tuple", "set", "frozenset", "dict"):
            return False
        return self._same_atom(expected, decode(data))

    def _same_dict(self, expected: dict[object, object], pairs: list[Json]) -> bool:
        names, matched = {name: name for name in expected}, set()
        for key, value in map(_list, pairs):
            name = decode(key)
            if name not in names or not _alike(names[name], name) or not self.same(expected[name], value):
                return False
            matched.add(name)
        return len(matched) == len(expected)

    def _same_atom(self, expected: object, value: object) -> bool:
        numbers = (int, float, Decimal, Fraction)
        if self.tolerance and isinstance(expected, float | int) and isinstance(value, numbers):
            if isinstance(expected, bool) or isinstance(value, bool):
                return expected is value
            return math.isclose(expected, value, rel_tol=self.tolerance, abs_tol=self.tolerance)
        return type(value) in _ATOMS and bool(expected == value) and _alike(expected, value)


def _alike(one: object, other: object) -> bool:
    """Whether equal values are of one kind: no bool for a number, no -0.0 for 0.0, in tuples and frozensets too."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return all(map(_alike, one, other))
    if isinstance(one, frozenset) and isinstance(other, frozenset):
        members = {member: member for member in other}
        return all(_alike(member, members[member]) for member in one)
    if isinstance(one, float | int) and isinstance(other, float | int) and not one:
        return isinstance(one, bool) == isinstance(other, bool) and math.copysign(1, one) == math.copysign(1, other)
    return isinstance(one, bool) == isinstance(other, bool)


_ATOMS = (type(None), bool, int, float, str, bytes, complex, range, Decimal, Fraction)


def _parts(data: Json) -> tuple[str, list[Json]]:
    """The kind of encoded data and its items; an atom has none."""
    if isinstance(data, list):
        return "list", data
    if isinstance(data, dict):
        kind, items = data.get(KIND), data.get(ITEMS)
        if isinstance(kind, str) and kind in ("tuple", "set", "frozenset", "dict") and isinstance(items, list):
            return kind, items
    return "atom", []
