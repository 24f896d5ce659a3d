"""Values between processes that do not trust each other: Python literals as JSON, and equality decided on this side.

`encode` may run in a process that a hostile program controls, so nothing is assumed about what it writes. `matches`
compares such text with a trusted value: its work is bounded by the size of the trusted value, and no method of a
foreign class is ever called.
"""

from __future__ import annotations

import contextlib
import math
from collections import deque
from decimal import Decimal
from fractions import Fraction
from typing import Any

KIND, ITEMS = "t", "v"
LARGEST = 1 << 53  # larger integers are written in hexadecimal, which is read in linear time
LONGEST_NUMBER = 400  # characters of a Decimal
DEEPEST = 200  # nesting


class NotALiteral(ValueError):
    """A value that is no composition of literals."""


def encode(value: Any, other: Any = None, depth: int = 0) -> Any:
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
        pairs = [[encode(k, other, depth + 1), encode(v, other, depth + 1)] for k, v in value.items()]
        return {KIND: "dict", ITEMS: pairs}
    plain_form = _plain_form(value)
    if plain_form is not None:
        return plain_form
    if other is None:
        raise NotALiteral(f"{type(value).__name__} is not a literal")
    return other(value, depth)


_SEQUENCES: dict[str, Any] = {"list": (list, deque), "tuple": tuple, "set": set, "frozenset": frozenset}


def _plain_form(value: Any) -> Any:
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


def decode(data: Any, other: Any = None) -> Any:
    """The value of encoded data; `other` decodes kinds that are not in this file. Raises NotALiteral for bad data."""
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list):
        return [decode(item, other) for item in data]
    if not isinstance(data, dict) or data.keys() != {KIND, ITEMS}:
        raise NotALiteral("not an encoded value")
    kind, items = data[KIND], data[ITEMS]
    try:
        return _decode_kind(kind, items, other)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise NotALiteral(f"bad {kind!r:.40}: {error}"[:200]) from None


def _decode_kind(kind: Any, items: Any, other: Any) -> Any:
    if kind == "int":
        return int(items, 16)
    if kind in ("tuple", "set", "frozenset"):
        build = {"tuple": tuple, "set": set, "frozenset": frozenset}[kind]
        return build(decode(item, other) for item in items)
    if kind == "dict":
        return {decode(key, other): decode(value, other) for key, value in items}
    if kind == "bytes":
        return bytes.fromhex(items)
    if kind == "complex":
        return complex(float(items[0]), float(items[1]))
    if kind == "range":
        return range(*(decode(item) for item in items))
    if kind == "decimal":
        if not isinstance(items, str) or len(items) > LONGEST_NUMBER:
            raise NotALiteral("bad decimal")
        number = Decimal(items)
        if number.is_finite() and abs(number.adjusted()) > LONGEST_NUMBER:
            raise NotALiteral("the decimal is too large")
        return number
    if kind == "fraction":
        return Fraction(decode(items[0]), decode(items[1]))
    if other is None:
        raise NotALiteral(f"unknown kind {kind!r:.40}")
    return other(kind, items)


def matches(expected: Any, data: Any, *, tolerance: float = 0.0, tuples_as_lists: bool = False) -> bool:
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

    def same(self, expected: Any, data: Any) -> bool:
        kind, items = _parts(data)
        if isinstance(expected, list | tuple):
            name = "list" if isinstance(expected, list) else "tuple"
            fits = kind == name or (self.tuples_as_lists and kind in ("list", "tuple"))
            return fits and len(items) == len(expected) and all(map(self.same, expected, items))
        if isinstance(expected, set | frozenset):
            if kind not in ("set", "frozenset") or len(items) != len(expected):
                return False
            known, found = {member: member for member in expected}, set()
            for item in items:
                value = decode(item)
                if value not in known or not _alike(known[value], value):
                    return False
                found.add(value)
            return len(found) == len(expected)
        if isinstance(expected, dict):
            return kind == "dict" and len(items) == len(expected) and self._same_dict(expected, items)
        if kind in ("list", "tuple", "set", "frozenset", "dict"):
            return False
        return self._same_atom(expected, decode(data))

    def _same_dict(self, expected: dict[Any, Any], pairs: Any) -> bool:
        known, found = {name: name for name in expected}, set()
        for key, value in pairs:
            name = decode(key)
            if name not in known or not _alike(known[name], name) or not self.same(expected[name], value):
                return False
            found.add(name)
        return len(found) == len(expected)

    def _same_atom(self, expected: Any, value: Any) -> bool:
        numbers = (int, float, Decimal, Fraction)
        if self.tolerance and isinstance(expected, float | int) and isinstance(value, numbers):
            if isinstance(expected, bool) or isinstance(value, bool):
                return expected is value
            return math.isclose(expected, value, rel_tol=self.tolerance, abs_tol=self.tolerance)
        return type(value) in _ATOMS and bool(expected == value) and _alike(expected, value)


def _alike(one: Any, other: Any) -> bool:
    """Whether equal values are of one kind: no bool for a number, no -0.0 for 0.0, in tuples and frozensets too."""
    if isinstance(one, tuple):
        return all(map(_alike, one, other))
    if isinstance(one, frozenset):
        members = {member: member for member in other}
        return all(_alike(member, members[member]) for member in one)
    if isinstance(one, float | int) and isinstance(other, float | int) and not one:
        return isinstance(one, bool) == isinstance(other, bool) and math.copysign(1, one) == math.copysign(1, other)
    return isinstance(one, bool) == isinstance(other, bool)


_ATOMS = (type(None), bool, int, float, str, bytes, complex, range, Decimal, Fraction)


def _parts(data: Any) -> tuple[str, Any]:
    """The kind of encoded data and its items."""
    if isinstance(data, list):
        return "list", data
    if isinstance(data, dict):
        kind, items = data.get(KIND), data.get(ITEMS)
        if kind in ("tuple", "set", "frozenset", "dict") and isinstance(items, list):
            return kind, items
    return "atom", data
