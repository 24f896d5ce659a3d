"""Loading of a program in its own process, and what its errors look like outside."""

from __future__ import annotations

import json
import os
import sys
import types
from collections.abc import Mapping

NAME = "<program>"  # the file name of a program in tracebacks
_LONGEST = 300  # characters of an error message


class Broken(Exception):
    """The program does not compile."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


def load(code: str, name: str) -> dict[str, object]:
    """Run a program and return its globals. Raises Broken, or whatever the program raises."""
    module = types.ModuleType(name)
    sys.modules[name] = module
    try:
        compiled = compile(code, NAME, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, MemoryError, RecursionError, OverflowError) as error:
        raise Broken(error) from None
    exec(compiled, module.__dict__)
    return module.__dict__


def describe(error: BaseException) -> dict[str, str | int | None]:
    """An error as data: kind ("syntax" or "runtime"), the name of its class, its message, its line in the program."""
    kind = "runtime"
    if isinstance(error, Broken):
        kind, error = "syntax", error.error
    line = error.lineno if isinstance(error, SyntaxError) else None
    frame = error.__traceback__
    while frame is not None:
        if frame.tb_frame.f_code.co_filename == NAME:
            line = frame.tb_lineno
        frame = frame.tb_next
    try:
        message = str(error)[:_LONGEST]
    except BaseException:  # noqa: BLE001 - a class of the program may do anything
        message = ""
    name = type(error).__name__
    return {"kind": kind, "name": name[:100], "message": message, "line": line}


def report(descriptor: int, what: Mapping[str, object]) -> None:
    """Write a line of JSON."""
    data = json.dumps(what).encode() + b"\n"
    while data:
        data = data[os.write(descriptor, data) :]
