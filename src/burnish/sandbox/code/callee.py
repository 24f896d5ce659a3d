"""The roles of a program whose functions are called: its calls are known at the start, or come from a test process."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from burnish.sandbox.code.load import describe, load, report
from burnish.sandbox.code.values import ITEMS, KIND, decode, encode
from burnish.util.json_types import Json

MODULE = "program"
_LONGEST_ITERATOR = 10_000
_KEYS: tuple[type, ...] = (type({}.keys()),)
_VIEWS: tuple[type, ...] = (type({}.values()), type({}.items()))


def evaluate(data: Mapping[str, Any], reporter: int) -> None:
    """Report {"loaded": true}, then for each call {"value": ...} or {"error": ...}."""
    functions = _load(data["code"], reporter)
    if functions is None:
        return
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 3000))
    for name, arguments, named in data["calls"]:
        objects = Objects()
        report(reporter, _called(functions, objects, name, arguments, named))


def serve(data: Mapping[str, Any], reporter: int, requests: int, replies: int) -> None:
    """Report {"loaded": true}, then answer the calls of a test process until it ends."""
    functions = _load(data["code"], reporter)
    if functions is None:
        return
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 3000))
    os.close(reporter)
    objects = Objects()
    with os.fdopen(requests, "rb") as lines:
        for line in lines:
            name, arguments, named = json.loads(line)
            report(replies, _called(functions, objects, name, arguments, named))


def _load(code: str, reporter: int) -> dict[str, Any] | None:
    try:
        functions = load(code, MODULE)
    except BaseException as error:  # noqa: BLE001 - SystemExit too
        report(reporter, {"error": describe(error)})
        return None
    report(reporter, {"loaded": True})
    return functions


class Objects:
    """Objects of the program that are no literals: outside they are numbers, which may come back as arguments."""

    def __init__(self) -> None:
        self.held: list[object] = []

    def encoded(self, value: object, depth: int) -> Json:
        """An iterator as its items, and anything else as a number."""
        if isinstance(value, _KEYS):
            keys: Any = value
            return encode(set(keys), self.encoded, depth)
        if hasattr(type(value), "__next__") or isinstance(value, _VIEWS):
            items: list[Json] = []
            iterator: Any = value
            for item in iterator:
                items.append(encode(item, self.encoded, depth + 1))
                if len(items) >= _LONGEST_ITERATOR:
                    break
            return {KIND: "iterator", ITEMS: items}
        self.held.append(value)
        return {KIND: "object", ITEMS: len(self.held) - 1}

    def decoded(self, kind: str, items: Json) -> object:
        if kind == "object" and isinstance(items, int):
            return self.held[items]
        raise ValueError(kind)


def _called(
    functions: dict[str, Any],
    objects: Objects,
    name: str | tuple[int, str],
    arguments: list[Json] | None,
    named: dict[str, Json],
) -> dict[str, object]:
    """The value of a call; of an attribute, where there are no arguments, the value, or that it is a method."""
    try:
        function = _find(functions, name) if isinstance(name, str) else getattr(objects.held[name[0]], name[1])
        if arguments is None:
            return {"method": True} if callable(function) else {"value": encode(function, objects.encoded)}
        given = [decode(value, objects.decoded) for value in arguments]
        by_name = {key: decode(value, objects.decoded) for key, value in named.items()}
        value = encode(function(*given, **by_name), objects.encoded)
        json.dumps(value)
    except BaseException as error:  # noqa: BLE001 - SystemExit too: the program's functions do not end the run
        return {"error": describe(error)}
    return {"value": value}


def _find(functions: dict[str, Any], name: str) -> Callable[..., object]:
    """A function of the program; of a class `Solution` the method of this name."""
    if name in functions:
        return functions[name]  # type: ignore[no-any-return]
    if "Solution" in functions and hasattr(functions["Solution"], name):
        return getattr(functions["Solution"](), name)  # type: ignore[no-any-return]
    raise NameError(f"the program does not define {name!r}")
