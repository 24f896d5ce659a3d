"""A grader process and its pipes: lines of JSON in both directions, every wait with a time limit.

The process is a guard with a worker below it (`guard.py`). It has no temporary files, so a killed run leaves none.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from burnish.util.processes import Words, kill_group, obituary

LONGEST_LINE = 64 << 20  # bytes; a longer answer counts as an error
TERMINATE_SECONDS = 3.0  # time for the guard to kill its processes


class Process:
    """A guarded process. `post` sends a line, `receive` waits for one.

    `receive` raises TimeoutError after its time limit, EOFError if the process is gone or the answer is invalid.
    """

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str], quiet: bool = False) -> None:
        self._words = Words() if quiet else None
        stack_reader, stack_writer = os.pipe()  # for the worker's stack, which it writes on SIGUSR1
        try:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", module, *arguments, str(stack_writer)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._words.file if self._words else None,
                start_new_session=True,  # so that Ctrl-C does not reach it
                pass_fds=[stack_writer],
                env={**environment, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
            )
        except OSError as error:
            os.close(stack_reader)
            raise ValueError(
                f"the grader process cannot be started ({error.strerror}); check for a limit on processes or memory"
            ) from error
        finally:
            os.close(stack_writer)
        assert self.popen.stdin is not None and self.popen.stdout is not None
        self._to, self._back, self._stack_reader = self.popen.stdin.fileno(), self.popen.stdout.fileno(), stack_reader
        for pipe in (self._to, self._back, self._stack_reader):
            os.set_blocking(pipe, False)
        self._unsent, self._unread = memoryview(b""), b""
        self.worker: int | None = None  # its process id, once it has sent it
        self.end = weakref.finalize(self, _end, self.popen, stack_reader)

    def post(self, request: object) -> None:
        """Queue a line of JSON; `receive` sends it while it waits."""
        self._unsent = memoryview(bytes(self._unsent) + json.dumps(request, default=str).encode() + b"\n")

    def receive(self, seconds: float) -> dict[str, Any]:
        """The next line of JSON."""
        if b"\n" not in self._unread:
            self._wait_for_line(time.monotonic() + seconds)
        line, _, self._unread = self._unread.partition(b"\n")
        try:
            answer = json.loads(line)
        except (ValueError, RecursionError):
            raise EOFError from None
        if not isinstance(answer, dict):
            raise EOFError
        if isinstance(answer.get("pid"), int) and self.worker is None:
            self.worker = answer["pid"]
        return answer

    def where(self) -> str:
        """The worker's current line, as ", at file.py:12 in name"; empty if unknown."""
        if self.worker is None:
            return ""
        stack = b""
        with contextlib.suppress(OSError):
            os.kill(self.worker, signal.SIGUSR1)
            for _ in range(20):
                time.sleep(0.02)
                with contextlib.suppress(BlockingIOError):
                    stack += os.read(self._stack_reader, 1 << 16)
                if stack.rpartition(b"\n")[0].strip().count(b"\n"):  # complete lines; the rest may still be coming
                    break
        return line_of(stack)

    def obituary(self) -> str:
        """How the process ended, after EOFError: "ended (exit status 1; its last words: ...)"."""
        return obituary(self.popen, self._words)

    def _wait_for_line(self, deadline: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._back, selectors.EVENT_READ)
            if self._unsent:
                selector.register(self._to, selectors.EVENT_WRITE)
            while b"\n" not in self._unread:
                wait = deadline - time.monotonic()
                if wait <= 0:
                    raise TimeoutError
                for key, _ in selector.select(wait):
                    if key.fd == self._to:
                        self._send()
                        if not self._unsent:
                            selector.unregister(self._to)
                    else:
                        self._read()

    def _send(self) -> None:
        try:
            self._unsent = self._unsent[os.write(self._to, self._unsent[: 1 << 16]) :]
        except BrokenPipeError:
            raise EOFError from None

    def _read(self) -> None:
        piece = os.read(self._back, 1 << 16)
        if not piece:
            raise EOFError
        self._unread += piece
        if len(self._unread) > LONGEST_LINE:
            raise EOFError


def line_of(stack: bytes) -> str:
    """The innermost line of a stack as faulthandler writes it, as ", at file.py:12 in name"; empty if unknown."""
    lines = [line.split('"') for line in stack.decode(errors="replace").splitlines() if "File " in line]
    if not lines or len(lines[0]) != 3:
        return ""
    _, file, rest = lines[0]
    words = rest.replace(",", " ").split()  # line 12 in name
    return f", at {Path(file).name}:{words[1]} in {words[-1]}" if len(words) > 2 else ""


def _end(popen: subprocess.Popen[bytes], stack_reader: int) -> None:
    """Terminate the guard, which kills its processes; if it does not end, kill its process group."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        popen.terminate()
        popen.wait(TERMINATE_SECONDS)
    if popen.returncode is None:
        kill_group(popen)
    for pipe in (popen.stdin, popen.stdout):
        with contextlib.suppress(OSError, AttributeError):
            pipe.close()  # type: ignore[union-attr]  # AttributeError of None is suppressed
    with contextlib.suppress(OSError):
        os.close(stack_reader)
