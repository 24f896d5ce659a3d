"""The sandbox of verifier processes: no files, no network, no other processes, limited memory.

Each measure is applied if the kernel supports it; measures that could not be applied are reported with the reason.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from burnish.sandbox import landlock, seccomp

MEMORY = 4 << 30  # bytes of address space
FILES = 128  # descriptors
_NEW_USER, _NEW_NETWORK, _NEW_IPC = 0x10000000, 0x40000000, 0x08000000
_SYSTEM = (
    *("/usr", "/lib", "/lib64", "/opt", "/etc/localtime", "/etc/ld.so.cache", "/etc/ld.so.conf", "/dev/null"),
    *("/dev/urandom", "/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu"),
)


def enter(scratch: str) -> dict[str, str]:
    """Enter the sandbox. Returns measure -> "yes: detail", or "no: reason".

    scratch: a temporary folder, which becomes the working directory and is removed
    """
    report = {}
    for name, measure in {
        "limits": _limit,
        "scratch": lambda: _leave_folders(scratch),
        "namespaces": _namespaces,
        "landlock": _landlock,
        "seccomp": _seccomp,
    }.items():
        report[name] = _apply(measure)
    return report


def _apply(measure: Callable[[], str]) -> str:
    try:
        return measure()
    except Exception as error:  # noqa: BLE001 - the other measures are applied anyway
        return f"no: {error}"


def _limit() -> str:
    for what, most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, FILES),
        (resource.RLIMIT_NPROC, 0),  # does not apply to root; the seccomp filter does
    ):
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(what, (most, most))
    return f"yes: {MEMORY >> 20} MiB of memory, no file sizes, no core dumps, {FILES} descriptors, no processes"


def limit_cpu(seconds: float) -> None:
    """Kill this process after this much more CPU time, in case the run is not there to kill it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(used.ru_utime + used.ru_stime + seconds) + 2
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


def _leave_folders(scratch: str) -> str:
    """Change to a folder and remove it, so that no file can be created in the working directory."""
    os.chdir(scratch)
    shutil.rmtree(scratch)
    return "yes: the working folder is an empty one that was removed"


def _namespaces() -> str:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_USER | _NEW_NETWORK | _NEW_IPC):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "yes: its own user, network and IPC namespaces"


def _landlock() -> str:
    if sys.platform != "linux":
        raise OSError("Landlock needs Linux")
    places = {*sys.path, sys.prefix, sys.base_prefix, sys.exec_prefix, *_SYSTEM}
    places |= {str(Path(__file__).parents[2])}
    version = landlock.restrict(sorted(place for place in places if place.startswith("/") and place != "/"))
    return f"yes: version {version}, reads only the files of Python"


def _seccomp() -> str:
    if sys.platform != "linux":
        raise OSError("seccomp needs Linux")
    seccomp.install()
    return "yes: no exec, no new process, no socket, no file opened for writing, no signal to others"
