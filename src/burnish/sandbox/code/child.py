"""A process that runs one program, or the tests of one, after it has confined itself.

Each role gets its data from a descriptor and reports lines of JSON on another:

program  runs as a script, with standard input and output
calls    defines functions, evaluates calls of them and reports the values
served   defines functions and answers the calls of a `tests` process
tests    runs the test code of a dataset, whose calls go to a `served` process: the program holds no expected value
command  runs a command line of the system's shell in a folder that it is given, and reports the folder
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from types import ModuleType

from burnish.sandbox.code import callee, checker, script, shell, substitutes
from burnish.sandbox.code.confine import Plan, confine, missing
from burnish.sandbox.code.limits import Limits

ROLES: dict[str, Callable[..., None]] = {
    "program": script.run,
    "calls": callee.evaluate,
    "served": callee.serve,
    "tests": checker.run,
    "command": shell.run,
}
# Descriptors of each role: data, report, and its own.
CHANNELS = {"program": 4, "calls": 2, "served": 4, "tests": 4, "command": 3}
_MODULES = (  # modules that programs import most often
    *(
        "array",
        "ast",
        "bisect",
        "cmath",
        "collections",
        "collections.abc",
        "copy",
        "dataclasses",
        "datetime",
        "decimal",
    ),
    *("enum", "fractions", "functools", "hashlib", "heapq", "io", "itertools", "json", "math", "numbers", "operator"),
    *("queue", "random", "re", "statistics", "string", "sys", "textwrap", "threading", "time", "traceback", "typing"),
)
_FIRST = 3  # number of the first descriptor after standard input, output and error
_HIGH = 128


def preload() -> None:
    """Import what programs import, once for all of them."""
    for name in _MODULES:
        importlib.import_module(name)
    substitutes.install()


def forget_ourselves() -> list[ModuleType]:
    """Remove burnish's modules from those that programs can import; returns them, so that they stay alive."""
    names = [name for name in sys.modules if name == "__main__" or name.partition(".")[0] == "burnish"]
    return [sys.modules.pop(name) for name in names]


def start(role: str, descriptors: list[int], plan: Plan, limits: Limits) -> None:
    """Confine this process, a new child of the zygote, and play a role. Does not return."""
    try:
        os.setsid()
        *channels, rules = _arrange([*descriptors, plan.rules if plan.rules >= 0 else descriptors[0]])
        report = confine(replace(plan, rules=rules if plan.rules >= 0 else -1), limits)
        os.close(rules)
        if plan.required and missing(report):
            os._exit(71)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        data = _read(channels[0])
        os.close(channels[0])
        ROLES[role](json.loads(data), *channels[1:])
    except BaseException:  # noqa: BLE001 - the exit status tells
        os._exit(70)
    os._exit(0)


def _arrange(descriptors: list[int]) -> list[int]:
    """Give the descriptors the numbers from 3 on, /dev/null those below, and close all others."""
    high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, _HIGH) for descriptor in descriptors]
    os.closerange(0, _HIGH)
    null = os.open(os.devnull, os.O_RDWR)
    assert null == 0
    os.dup2(0, 1)
    os.dup2(0, 2)
    placed = [os.dup2(descriptor, _FIRST + number) for number, descriptor in enumerate(high)]
    os.closerange(_HIGH, _HIGH + len(high))
    return placed


def _read(descriptor: int) -> bytes:
    pieces: list[bytes] = []
    while piece := os.read(descriptor, 1 << 20):
        pieces.append(piece)
    return b"".join(pieces)
