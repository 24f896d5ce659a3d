"""The role of a program that runs as a script, with standard input and output."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
from collections.abc import Mapping

from burnish.sandbox.code.load import describe, load, report


def run(data: Mapping[str, str], reporter: int, entered: int, printed: int) -> None:
    """Run the program; report how it ended: {"ended": exit code} or {"error": ...}."""
    os.dup2(entered, 0)
    os.dup2(printed, 1)
    os.close(entered)
    os.close(printed)
    sys.stdin = os.fdopen(0, encoding="utf-8", errors="replace", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="replace", closefd=False)
    for name in ("stdin", "stdout"):  # a program that wraps them anew drops the old ones, which would then be closed
        setattr(sys, f"__{name}__", getattr(sys, name))
    sys.argv = ["program.py"]
    ending: dict[str, object]
    try:
        load(data["code"], "__main__")
        ending = {"ended": 0}
    except SystemExit as stop:
        code = stop.code
        ending = {"ended": code if isinstance(code, int) else 0 if code is None else 1}
    except BaseException as error:  # noqa: BLE001 - KeyboardInterrupt too
        ending = {"error": describe(error)}
    try:
        threading._shutdown()  # type: ignore[attr-defined]  # waits for the program's threads, as Python does
        atexit._run_exitfuncs()
        for stream in filter(None, (sys.stdout, sys.__stdout__)):
            with contextlib.suppress(ValueError):  # the program has closed or detached it
                stream.flush()
    finally:
        report(reporter, ending)
