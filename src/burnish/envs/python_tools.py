"""`--tools python`: a Python interpreter with a state, in the sandbox that grades programs.

Each call runs in a process of its own: without network, without files but those in a folder in memory, within limits
of time, memory and output (sandbox/code/limits.py). What earlier calls of the episode defined is there, because those
that ended without an error are run again first, their output dropped; so a call that reads the clock may find other
values. The value of a last line that is an expression is printed, as in a console.
"""

from __future__ import annotations

import ast

from burnish.envs.tools import Tool
from burnish.sandbox.code.box import Child
from burnish.sandbox.code.limits import Limits
from burnish.sandbox.code.pool import pool
from burnish.verifiers.code.grade import reported

LONGEST, MOST_CELLS = 20_000, 64  # characters of the code of a call, and calls whose state is kept
SHOWN = 3_000  # characters of output that the model reads
_QUIET = "import io as _io, sys as _sys\n_sys.stdout = _io.StringIO()\n"
_LOUD = "\n_sys.stdout = _sys.__stdout__\n"


def run_code(code: str, limits: Limits) -> tuple[str, str]:
    """What a program prints, and its error; empty where it has none."""
    run = pool(limits).run([Child("program", {"code": code})])
    child = run.children[0]
    printed = child.printed.decode("utf-8", "replace")
    errors = [entry["error"] for entry in reported(child.report) if isinstance(entry.get("error"), dict)]
    if run.late:
        return printed, f"not finished after {limits.seconds:g} s"
    if run.much:
        return printed, f"it wrote more than {limits.output >> 10} KiB"
    if errors and isinstance(error := errors[-1], dict):
        return printed, f"{error.get('name')}: {error.get('message')}"[:500]
    return printed, "" if child.status == 0 else "its process was ended"


class Interpreter:
    """The interpreter of one episode. begin: code that has run before the first call."""

    seconds = 10.0

    def __init__(self, begin: str = "") -> None:
        self._cells: list[str] = [begin] if begin else []

    def python(self, code: str) -> str:
        """Run Python. What earlier calls defined is still there; print shows results.

        Args:
            code: The code.
        """
        if len(code) > LONGEST:
            return f"error: the code has {len(code)} characters; at most {LONGEST} are run"
        before = "".join(f"{cell}\n" for cell in self._cells)
        program = f"{_QUIET}{before}{_LOUD}{_echoing(code)}" if before else _echoing(code)
        printed, error = run_code(program, Limits().within(self.seconds))
        if not error:
            self._cells = [*self._cells, code][-MOST_CELLS:]
        shown = printed if len(printed) <= SHOWN else f"{printed[:SHOWN]}\n[{len(printed) - SHOWN} more characters]"
        return f"{shown}error: {error}" if error else shown or "(nothing was printed)"


def python_tools(place: str) -> list[Tool]:
    """The interpreter. place: the seconds that a call may take; empty for 10."""
    try:
        seconds = float(place) if place else Interpreter.seconds
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 600:
        raise ValueError(f"--tools python:{place}: give the seconds that a call may take, as in python:10")
    return Tool.all_of(type("Interpreter", (Interpreter,), {"seconds": seconds, "__doc__": Interpreter.__doc__}))


def _echoing(code: str) -> str:
    """The code, with the value of a last expression printed."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return code  # the process says what is wrong
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr) or last.col_offset or not last.end_lineno:
        return code
    lines = code.splitlines()
    value = "\n".join(lines[last.lineno - 1 : last.end_lineno])
    if not value.isascii() or ";" in value:
        return code
    return "\n".join([*lines[: last.lineno - 1], f"_ = (\n{value}\n)", "if _ is not None: print(repr(_))"])
