"""Processes that this one started, and how they are ended for good."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess


def kill_group(popen: subprocess.Popen) -> None:
    """SIGKILL to a process that leads a group of its own, and to all that it started; then its pipes are closed."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(popen.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        popen.wait(5)
    for pipe in (popen.stdin, popen.stdout):
        with contextlib.suppress(OSError, AttributeError):
            pipe.close()  # type: ignore[union-attr]
