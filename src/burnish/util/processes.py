"""Killing of child processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess


def kill_group(popen: subprocess.Popen[bytes]) -> None:
    """Send SIGKILL to a process and its process group, and close its pipes."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(popen.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        popen.wait(5)
    for pipe in (popen.stdin, popen.stdout):
        with contextlib.suppress(OSError, AttributeError):
            pipe.close()  # type: ignore[union-attr]
