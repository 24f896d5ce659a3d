"""Child processes: killing them, and saying how they ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from typing import IO

SECONDS = 3.0  # for a process that has closed its output to be gone


def kill_group(popen: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to a process and its process group, and close its pipes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(popen.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        popen.wait(5)
    for pipe in (popen.stdin, popen.stdout):
        with contextlib.suppress(OSError, AttributeError):
            pipe.close()  # type: ignore[union-attr]


def how_ended(code: int | None) -> str:
    """How a process ended, by its exit status as subprocess has it."""
    if code is None:
        return "still running, its output closed"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"


def last_words(text: str) -> str:
    """The last line of what a process wrote that says what was wrong, for a message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line] or lines
    return telling[-1][-300:] if telling else "it said nothing"


class Words:
    """The standard error of a process whose output is not shown, while it starts.

    It is a file without a name, so that a killed run leaves none. The process lets go of it when it has started.
    """

    def __init__(self) -> None:
        self.file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as this

    def text(self) -> str:
        """The end of what was written. The process shares the file's position, which stays as it is."""
        size = os.fstat(self.file.fileno()).st_size
        return os.pread(self.file.fileno(), 1 << 16, max(0, size - (1 << 16))).decode(errors="replace")


def hush() -> None:
    """Send this process's standard output and standard error to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        os.dup2(nowhere, descriptor)
    os.close(nowhere)


def obituary(popen: subprocess.Popen[bytes], words: Words | None = None) -> str:
    """What a message says of a process that has closed its output: "ended (exit status 1; its last words: ...)"."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        popen.wait(SECONDS)
    said = f"; its last words: {last_words(words.text())}" if words is not None else ""
    return f"ended ({how_ended(popen.returncode)}{said})"
