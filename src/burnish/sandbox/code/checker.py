"""The role that runs the test code of a dataset; the functions under test are proxies of another process.

Every assert outside of a `try` counts as one test and does not stop the others, so that the share of tests passed is
known. The verdict goes to a descriptor that the program's process never had.
"""

from __future__ import annotations

import ast
import builtins
import json
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypedDict

from burnish.sandbox.code.load import describe, report
from burnish.sandbox.code.values import ITEMS, KIND, decode, encode
from burnish.util.json_types import Json

_DETAILS = 20  # failures that are described
_LONGEST_REPLY = 16 << 20
_RECORD = "__burnish_record__"
_PATTERN = f"""
try:
    assert 0
    {_RECORD}.passed()
except BaseException as {_RECORD}error:
    {_RECORD}.failed({_RECORD}error)
"""


_KEPT_OUT = (AssertionError, StopIteration, StopAsyncIteration)  # they mean something to the tests themselves


class Gone(BaseException):
    """The program's process has ended. Not an Exception, so that no test catches it."""


class Raised(Exception):
    """An exception of the program whose class is unknown here."""


class Object:
    """An object of the program that is no literal. It can be passed back to the program, and has its attributes."""

    def __init__(self, number: int, program: Program) -> None:
        self.number, self._program = number, program

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._program.attribute(self.number, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Object) and other.number == self.number

    def __hash__(self) -> int:
        return hash(("object", self.number))


class Program:
    """The other process: `call` asks it for the value of a call."""

    def __init__(self, replies: int, requests: int) -> None:
        self.replies, self.requests = replies, requests
        self.unread = b""
        self.gone = False
        self.error: dict[str, Json] | None = None  # of the last call

    def call(self, name: str | tuple[int, str], arguments: tuple[object, ...], named: dict[str, object]) -> object:
        """The value of a call of a function, or of a method: [number of the object, name]."""
        given = [encode(value, _number_of) for value in arguments]
        reply = self._asked([name, given, {key: encode(value, _number_of) for key, value in named.items()}])
        return self._value(reply)

    def attribute(self, number: int, name: str) -> object:
        """The value of an object's attribute, or a proxy of its method."""
        reply = self._asked([(number, name), None, {}])
        return Proxy(self, (number, name)) if reply.get("method") is True else self._value(reply)

    def _asked(self, request: list[object]) -> dict[str, Json]:
        self.error = None
        reply = self._ask(json.dumps(request).encode() + b"\n")
        error = reply.get("error")
        if isinstance(error, dict):
            self.error = error
            raise _exception(error)
        return reply

    def _value(self, reply: dict[str, Json]) -> object:
        try:
            return decode(reply["value"], self._object_of)
        except (KeyError, ValueError, RecursionError):
            raise self._end() from None

    def _object_of(self, kind: str, items: Json) -> object:
        if kind == "object" and isinstance(items, int):
            return Object(items, self)
        if kind == "iterator" and isinstance(items, list):
            return iter([decode(item, self._object_of) for item in items])
        raise ValueError(kind)

    def _ask(self, request: bytes) -> dict[str, Json]:
        try:
            while request:
                request = request[os.write(self.requests, request) :]
            while b"\n" not in self.unread:
                piece = os.read(self.replies, 1 << 20)
                if not piece or len(self.unread) > _LONGEST_REPLY:
                    raise self._end()
                self.unread += piece
            line, _, self.unread = self.unread.partition(b"\n")
            reply = json.loads(line)
        except (OSError, ValueError, RecursionError):
            raise self._end() from None
        if not isinstance(reply, dict):
            raise self._end()
        return reply

    def _end(self) -> Gone:
        self.gone = True
        return Gone("the program's process ended, or answered with something that is not a value")


def _number_of(value: object, depth: int) -> Json:
    if isinstance(value, Object):
        return {KIND: "object", ITEMS: value.number}
    if isinstance(value, Proxy):
        raise TypeError("a function of the program cannot be an argument")
    if isinstance(value, Iterator):
        return encode(list(value), _number_of, depth + 1)
    raise TypeError(f"an argument of type {type(value).__name__} cannot be sent to the program")


def _exception(error: Mapping[str, Json]) -> Exception:
    """The built-in exception of the same name as the program's, else Raised."""
    name, message = str(error.get("name")), str(error.get("message"))
    kind = getattr(builtins, name, None)
    if isinstance(kind, type) and issubclass(kind, Exception) and kind not in _KEPT_OUT:
        try:
            return kind(message)
        except TypeError:  # UnicodeDecodeError needs five arguments
            pass
    return Raised(f"{name}: {message}")


class Proxy:
    """A function of the program, or a method of one of its objects."""

    def __init__(self, program: Program, name: str | tuple[int, str]) -> None:
        self.__name__ = name if isinstance(name, str) else name[1]
        self._name, self._program = name, program

    def __call__(self, *arguments: object, **named: object) -> object:
        return self._program.call(self._name, arguments, named)


class Solution(types.ModuleType):
    """The program as a module, for tests that say `from solution import f`."""

    def __init__(self, program: Program) -> None:
        super().__init__("solution")
        self._program = program

    def __getattr__(self, name: str) -> Proxy:
        if name.startswith("__"):
            raise AttributeError(name)
        return Proxy(self._program, name)


class Record:
    """Counts the asserts, and reports each one."""

    def __init__(self, reporter: int, program: Program) -> None:
        self.reporter, self.program, self.failures = reporter, program, 0

    def passed(self) -> None:
        os.write(self.reporter, b"1\n")

    def failed(self, error: BaseException) -> None:
        """A failed test: the program raised, or its value is wrong."""
        if isinstance(error, Gone):
            raise error
        self.failures += 1
        if self.failures > _DETAILS:
            os.write(self.reporter, b"0\n")
            return
        raised = self.program.error if not isinstance(error, AssertionError) else None
        report(self.reporter, {"wrong": describe(error)["message"] or type(error).__name__, "raised": raised})


class _Counted(ast.NodeTransformer):
    """Replaces `assert x` by `try: assert x; record.passed()  except BaseException as e: record.failed(e)`."""

    def visit_Assert(self, node: ast.Assert) -> ast.stmt:
        counted = ast.parse(_PATTERN).body[0]
        assert isinstance(counted, ast.Try)
        counted.body[0] = node
        return ast.copy_location(counted, node)

    def visit_Try(self, node: ast.Try) -> ast.stmt:
        return node


class TestCode(TypedDict):
    """before: code that defines helpers; tests: sources; entry: the function that `check(candidate)` gets."""

    before: str
    tests: list[str]
    entry: str | None


def run(data: TestCode, reporter: int, replies: int, requests: int) -> None:
    """Run the tests; report "1", "0" or a description for each assert, and {"done": ...} at the end.

    Names that the tests use and do not define are the program's.
    """
    program = Program(replies, requests)
    record = Record(reporter, program)
    sys.modules["solution"] = Solution(program)
    names: dict[str, object] = {"__name__": "tests", _RECORD: record}
    try:
        _define(data["before"], names)
        trees = [ast.parse(source) for source in data["tests"]]
        missing: set[str] = set().union(*map(_used, trees)) - names.keys()
        if data["entry"] is not None:
            missing.add(data["entry"])
        names.update({name: Proxy(program, name) for name in missing})
        for tree in trees:
            _run_one(tree, names, record)
        for test in _functions(names, data["entry"]):
            _attempt(test, record)
    except Gone as error:
        report(reporter, {"gone": str(error)})
    except BaseException as error:  # noqa: BLE001 - the test code itself is broken
        report(reporter, {"broken": f"{type(error).__name__}: {error}"[:500]})
    else:
        report(reporter, {"gone": "the program's process ended"} if program.gone else {"done": True})


def _define(before: str, names: dict[str, object]) -> None:
    """Run code that comes before the tests: helpers, or a prompt whose last function may have no body yet."""
    for source in (before, before + "\n    pass\n"):
        try:
            compiled = compile(source, "<before the tests>", "exec", dont_inherit=True)
        except SyntaxError:
            continue  # a prompt in words
        exec(compiled, names)
        return


def _used(tree: ast.Module) -> set[str]:
    """The names that a source uses and neither assigns, imports nor has from Python."""
    used: set[str] = set()
    own = set(dir(builtins))
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            (used if isinstance(node.ctx, ast.Load) else own).add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            own.add(node.name)
        elif isinstance(node, ast.arg):
            own.add(node.arg)
        elif isinstance(node, ast.alias):
            own.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.ExceptHandler) and node.name:
            own.add(node.name)
    return used - own


def _run_one(tree: ast.Module, names: dict[str, object], record: Record) -> None:
    counted = ast.fix_missing_locations(_Counted().visit(tree))
    compiled = compile(counted, "<tests>", "exec", dont_inherit=True)
    _attempt(lambda: exec(compiled, names), record)


def _attempt(test: Callable[[], object], record: Record) -> None:
    """An exception outside of an assert is a failed test too; a missing module is none of the program's."""
    try:
        test()
    except ImportError as error:
        if record.program.error is None:
            raise
        record.failed(error)
    except Exception as error:  # noqa: BLE001
        record.failed(error)


def _functions(names: dict[str, object], entry: str | None) -> Iterator[partial[object]]:
    """The functions of the test code that are to be called: check(candidate), or test_*()."""
    check = names.get("check")
    if entry is not None and callable(check):
        yield partial(check, names[entry])
        return
    for name, value in list(names.items()):
        if name.startswith("test_") and isinstance(value, types.FunctionType):
            yield partial(value)
