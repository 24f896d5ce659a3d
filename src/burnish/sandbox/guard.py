"""A guard process between a run and a grader: when either ends, all processes that the grader started are killed.

The process that the run started becomes the guard, and its child does the work. The guard is a "child subreaper":
orphans below it become its children, whatever sessions they created, and are killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

_DEATH_SIGNAL, _SUBREAPER = 1, 36  # prctl
KILL_SECONDS = 3.0  # time for killed processes to disappear


def scratch_folder(prefix: str) -> str:
    """A new temporary folder, to be given to `fork_guard`. SIGTERM waits from now on until the guard can remove it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    return tempfile.mkdtemp(prefix=prefix)


def fork_guard(*private: int, scratch: str | None = None) -> None:
    """Fork. The child returns; the parent (the guard) waits until the child or standard input ends, and never returns.

    private: descriptors of the child, which the guard closes, so that the run sees end-of-file when the child is gone
    scratch: a folder that the guard removes at the end
    """
    _prctl(_SUBREAPER, 1)
    guard = os.getpid()
    worker = os.fork()
    if not worker:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        _prctl(_DEATH_SIGNAL, signal.SIGKILL)
        if os.getppid() not in (guard, 0):  # 0: the guard is outside of the child's process namespace
            os._exit(1)  # the guard was killed before the death signal was set
        return
    for descriptor in private:
        os.close(descriptor)
    code = 0
    with contextlib.suppress(BaseException):
        code = _watch(worker) or 0
    _kill_all()
    if scratch is not None:
        shutil.rmtree(scratch, ignore_errors=True)
    _exit_as(code)


def _exit_as(code: int) -> None:
    """End as the worker did, by an exit status or by a signal, so that the run can say how it ended."""
    if code < 0:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if -code != signal.SIGKILL:
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
    os._exit(code if code >= 0 else 128 - code)


def _watch(worker: int) -> int | None:
    """Return when the worker has ended, with its exit status; when standard input is closed (the run is gone), or on
    SIGTERM: with None.
    """
    wake_reader, wake_writer = os.pipe()
    os.set_blocking(wake_writer, False)
    signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
    ended: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    poll = select.poll()
    poll.register(0, 0)  # hang-ups are always reported
    poll.register(wake_reader, select.POLLIN)
    while not ended:
        if (status := _over(worker)) is not None:
            return status
        for descriptor, what in poll.poll():
            if descriptor == 0 and what & (select.POLLHUP | select.POLLERR | select.POLLNVAL):
                return None
            if descriptor == wake_reader:
                os.read(wake_reader, 512)
    return None


def _over(worker: int) -> int | None:
    """The exit status of the worker, negative for a signal; None while it runs. Also reaps other children."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 0
        if pid == worker:
            return os.waitstatus_to_exitcode(status)
        if not pid:
            return None


def _kill_all() -> None:
    """Kill the worker and its descendants, generation by generation: orphans become children of this process."""
    if sys.platform != "linux":
        os.killpg(0, signal.SIGKILL)  # there is no subreaper: kill the process group, including this process
    deadline = time.monotonic() + KILL_SECONDS
    with contextlib.suppress(ChildProcessError):
        while time.monotonic() < deadline:
            for pid in _children():
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                time.sleep(0.005)


def _children() -> set[int]:
    """The processes whose parent is this one."""
    pids = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                pids.add(int(stat.parent.name))
    return pids


def _prctl(option: int, value: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
