"""A program in isolation: `python -m burnish.sandbox.lean_process SETTINGS PROGRAM ARGUMENTS...`

The process limits itself (memory, CPU time, no network, files by Landlock) and becomes the program. It ends with
status CANNOT and the reason on standard error if it cannot isolate itself and must.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

from burnish.sandbox import landlock

CANNOT = 97
OUTPUT = 16 << 20  # bytes that it may print
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000
_NETWORK_SINCE = 4  # the version of Landlock that restricts it
_SYSTEM = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime", "/dev/null", "/dev/urandom", "/proc", "/sys")
_LOADERS = ("/lib64", "/lib/ld-linux-aarch64.so.1", "/lib/ld-linux-x86-64.so.2")


def main(settings: dict[str, Any], program: list[str]) -> None:
    """Isolate this process and become the program.

    settings: memory (bytes), seconds (CPU time), readable and executable (paths), unsafe (run even if not isolated)
    """
    memory, seconds = settings["memory"], int(settings["seconds"]) + 2
    for what, most in {
        resource.RLIMIT_AS: memory,
        resource.RLIMIT_CPU: seconds,
        resource.RLIMIT_FSIZE: OUTPUT,
        resource.RLIMIT_CORE: 0,
    }.items():
        resource.setrlimit(what, (most, most))
    libc = ctypes.CDLL(None, use_errno=True)
    own_network = libc.unshare(_NEW_USER | _NEW_NETWORK) == 0
    readable, executable = settings["readable"], settings["executable"]
    loaders = [str(file) for place in _LOADERS for file in _files(place)]
    try:
        rules, version = landlock.ruleset([*_SYSTEM, *readable], executable=[*executable, *loaders])
        landlock.enforce(rules)
        os.close(rules)
        if not own_network and version < _NETWORK_SINCE:
            raise OSError("neither network namespaces nor Landlock 4")
    except OSError as error:
        if not settings["unsafe"]:
            print(f"this machine cannot isolate {program[0]}: {error}", file=sys.stderr)
            sys.exit(CANNOT)
    os.execv(program[0], program)


def _files(place: str) -> list[Path]:
    """The loader of dynamic programs, which is executed with each of them."""
    path = Path(place)
    with contextlib.suppress(OSError):
        return [file.resolve() for file in path.glob("ld-*")] if path.is_dir() else [path.resolve(strict=True)]
    return []


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])
