"""Kills the processes of a Ray cluster when the process that started it is gone, even after SIGKILL.

Ray's agents outlive a killed driver by a minute. This file runs as a separate process, with only the standard library:
it lists Ray's processes while they run, and kills the remaining ones when its standard input, a pipe that only the
driver holds, is closed. Processes that were started just before the driver died, and have another parent by now, are
found by a mark in their environment. It reads /proc; on systems without it, `watched` does nothing.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

POLL, GRACE = 1.0, 5.0  # seconds between two listings of processes; seconds that they have to end by themselves
MARK = "BURNISH_RAY_MARK"  # environment variable with a random value, which processes started by the driver inherit
ENDED = b"e"  # the driver writes this after it has stopped Ray itself
Processes = dict[int, str]  # pid -> start time, to distinguish a later process with the same pid


@contextlib.contextmanager
def watched(ray_folder: str) -> Iterator[None]:
    """Inside, Ray's processes below this one end with it. ray_folder: where the package ray is installed."""
    if not Path("/proc/self/stat").exists():
        yield
        return
    mark = os.environ[MARK] = secrets.token_hex(16)
    words = [sys.executable, "-I", __file__, str(os.getpid()), ray_folder, mark]
    quiet = subprocess.DEVNULL
    watchdog = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True)
    assert watchdog.stdin is not None
    try:
        yield
    finally:
        os.environ.pop(MARK, None)
        with contextlib.suppress(BrokenPipeError):  # the watchdog was killed
            watchdog.stdin.write(ENDED)
            watchdog.stdin.close()
        try:
            watchdog.wait(2 * GRACE)
        except subprocess.TimeoutExpired:
            watchdog.kill()


def main(driver: int, ray_folder: str, mark: str) -> None:
    """Watch until the driver is gone or done, then kill the remaining processes."""
    seen: Processes = {}
    message: bytes | None = None
    while message is None and os.getppid() == driver:
        seen |= ray_processes(driver, ray_folder)
        if select.select([0], [], [], POLL)[0]:
            message = os.read(0, 1)
    seen |= ray_processes(driver, ray_folder) | marked_processes(mark, ray_folder)
    for pid in list(seen):  # a raylet that is still running may have started more
        seen |= descendants(pid)
    deadline = time.monotonic() + (GRACE if message == ENDED else 0.0)
    while alive(seen) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in alive(seen):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def ray_processes(driver: int, ray_folder: str) -> Processes:
    """The children of the driver that run a program of Ray's package, with all their descendants."""
    table = _table()
    return _below([pid for pid, (parent, _) in table.items() if parent == driver and _is_ray(pid, ray_folder)], table)


def marked_processes(mark: str, ray_folder: str) -> Processes:
    """The processes with the mark that run a program of Ray's package, whatever their parent is, and their descendants.

    A driver that is killed less than POLL seconds after it started Ray leaves processes that were never listed.
    """
    table = _table()
    wanted = f"{MARK}={mark}"
    marked = [pid for pid in table if wanted in _words(pid, "environ") and _is_ray(pid, ray_folder)]
    return _below(marked, table)


def having(variable: str) -> Processes:
    """The processes whose environment has a variable that starts with these words, NAME=value."""
    table = _table()
    marked = [pid for pid in table if any(word.startswith(variable) for word in _words(pid, "environ"))]
    return {pid: table[pid][1] for pid in marked}


def descendants(pid: int) -> Processes:
    return _below([pid], _table())


def alive(seen: Processes) -> list[int]:
    """The pids that still belong to these processes: a reused pid does not count."""
    table = _table()
    return [pid for pid, started in seen.items() if pid in table and table[pid][1] == started]


def _below(roots: list[int], table: dict[int, tuple[int, str]]) -> Processes:
    children: dict[int, list[int]] = {}
    for pid, (parent, _) in table.items():
        children.setdefault(parent, []).append(pid)
    below: Processes = {}
    left = [pid for pid in roots if pid in table]
    while left:
        pid = left.pop()
        below[pid] = table[pid][1]
        left += children.get(pid, [])
    return below


def _table() -> dict[int, tuple[int, str]]:
    """pid -> (parent, start time in ticks since boot), of every process that is not a zombie; empty without /proc."""
    table: dict[int, tuple[int, str]] = {}
    if not os.path.isdir("/proc"):
        return table
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                state, parent, *rest = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                if state != "Z":
                    table[int(entry)] = (int(parent), rest[17])
    return table


def _is_ray(pid: int, ray_folder: str) -> bool:
    command = " ".join(_words(pid, "cmdline"))
    return ray_folder in command and __file__ not in command  # not the watchdog


def _words(pid: int, file: str) -> list[str]:
    """The NUL-separated words of a file of /proc/PID; none where it cannot be read."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/{file}").read_bytes().decode(errors="replace").split("\0")
    return []


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3])
