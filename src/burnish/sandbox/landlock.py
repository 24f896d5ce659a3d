"""Landlock: restrict this process to reading files below some folders, and to writing below others."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same numbers on every architecture
_WRITE_FILE, _READ_FILE, _READ_DIRECTORY = 1 << 1, 1 << 2, 1 << 3
_EXECUTE, _DEVICES, _SOCKET, _FIFO, _IOCTL = 1 << 0, (1 << 6) | (1 << 11), 1 << 9, 1 << 10, 1 << 15
_NOT_IN_SCRATCH = _EXECUTE | _DEVICES | _SOCKET | _FIFO | _IOCTL
_RIGHTS = {1: (1 << 13) - 1, 2: 1 << 13, 3: 1 << 14, 5: 1 << 15}  # file rights that each Landlock version added
_NETWORK_SINCE, _SCOPES_SINCE = 4, 6


def restrict(readable: Iterable[str]) -> int:
    """Allow only reading of these files and folders; return Landlock's version, or raise OSError without it."""
    rules, version = ruleset(readable)
    try:
        enforce(rules)
    finally:
        os.close(rules)
    return version


def ruleset(
    readable: Iterable[str],
    writable: Iterable[str] = (),
    executable: Iterable[str] = (),
    listed: Iterable[str] = (),
    devices: Iterable[str] = (),
) -> tuple[int, int]:
    """A descriptor of rules that allow only these files and folders, and Landlock's version; OSError without it.

    writable: folders below which files may also be created, written and removed
    executable: files and folders that may also be executed
    listed: folders whose names may be read, but not the files below them
    devices: files such as /dev/null that may also be written
    """
    libc = ctypes.CDLL(None, use_errno=True)
    version = _checked(libc, _CREATE, None, 0, 1)  # LANDLOCK_CREATE_RULESET_VERSION
    rights = sum(bits for since, bits in _RIGHTS.items() if version >= since)
    network = 0b11 if version >= _NETWORK_SINCE else 0  # binding and connecting TCP sockets
    scopes = 0b11 if version >= _SCOPES_SINCE else 0  # abstract sockets and signals, to processes outside
    size = 8 if version < _NETWORK_SINCE else 16 if version < _SCOPES_SINCE else 24
    rules = _checked(libc, _CREATE, struct.pack("=QQQ", rights, network, scopes)[:size], size, 0)
    for path in readable:
        with contextlib.suppress(OSError):  # the folder does not exist
            _allow(libc, rules, path, _READ_FILE | (_READ_DIRECTORY if os.path.isdir(path) else 0))
    for path in executable:
        with contextlib.suppress(OSError):
            _allow(libc, rules, path, _EXECUTE | _READ_FILE | (_READ_DIRECTORY if os.path.isdir(path) else 0))
    for path in listed:
        _allow(libc, rules, path, _READ_DIRECTORY)
    for path in devices:
        _allow(libc, rules, path, _READ_FILE | _WRITE_FILE)
    for path in writable:
        _allow(libc, rules, path, rights & ~_NOT_IN_SCRATCH)
    return rules, version


def enforce(rules: int) -> None:
    """Restrict this process and its children, irrevocably, to what the rules allow."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0):  # PR_SET_NO_NEW_PRIVS
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_NO_NEW_PRIVS) failed")
    _checked(libc, _RESTRICT, rules, 0)


def _allow(libc: ctypes.CDLL, rules: int, path: str, allowed: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        _checked(libc, _ADD, rules, 1, struct.pack("=Qi", allowed, descriptor), 0)  # LANDLOCK_RULE_PATH_BENEATH
    finally:
        os.close(descriptor)


def _checked(libc: ctypes.CDLL, number: int, *arguments: object) -> int:
    result: int = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
