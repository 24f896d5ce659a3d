"""The system calls of Linux that Python does not offer: namespaces, mounts, capabilities."""

from __future__ import annotations

import ctypes
import os
import struct

NEW_MOUNTS, NEW_UTS, NEW_IPC, NEW_USER = 0x00020000, 0x04000000, 0x08000000, 0x10000000
NEW_PIDS, NEW_NETWORK = 0x20000000, 0x40000000
REMOUNT, BIND, RECURSIVE, PRIVATE, DETACH = 0x20, 0x1000, 0x4000, 0x40000, 0x2
READ_ONLY, NO_SETUID, NO_DEVICES, NO_EXEC = 0x1, 0x2, 0x4, 0x8  # both MS_... and MOUNT_ATTR_...
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_MOUNT_SETATTR = 442
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_KEEP_NO_CAPABILITIES = struct.pack("=IIIIII", 0, 0, 0, 0, 0, 0)
_CAPABILITY_VERSION = 0x20080522
_DEATH_SIGNAL, _DUMPABLE = 1, 4

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def set_host_name(name: str) -> None:
    _checked(_libc.sethostname(name.encode(), len(name)), "sethostname")


def mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    given = (source.encode(), target.encode(), kind.encode() if kind else None)
    _checked(_libc.mount(*given, ctypes.c_ulong(flags), options.encode()), f"mount {target}")


def unmount(target: str) -> None:
    """Detach a mount; it is gone when it is not in use any more."""
    _checked(_libc.umount2(target.encode(), DETACH), f"umount {target}")


def restrict_mount(target: str, attributes: int) -> None:
    """Add READ_ONLY, NO_SETUID, ... to a mount and all mounts below it."""
    wanted = struct.pack("=QQQQ", attributes, 0, 0, 0)
    done = _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, target.encode(), _AT_RECURSIVE, wanted, ctypes.c_size_t(32))
    _checked(done, f"mount_setattr {target}")


def restrict_root(flags: int) -> None:
    """Give the root READ_ONLY, NO_SETUID, ..., but not the mounts below it."""
    mount("none", "/", None, REMOUNT | BIND | flags)


def pivot_root(new: str) -> None:
    """Make a folder the root of this mount namespace, and detach the old root."""
    os.chdir(new)
    _checked(_libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    unmount(".")
    os.chdir("/")


def drop_capabilities() -> None:
    _checked(_libc.capset(struct.pack("=Ii", _CAPABILITY_VERSION, 0), _KEEP_NO_CAPABILITIES), "capset")


def die_with_parent(signal: int) -> None:
    _libc.prctl(_DEATH_SIGNAL, signal, 0, 0, 0)


def hide_memory() -> None:
    """Keep other processes of this user from reading this one's memory."""
    _libc.prctl(_DUMPABLE, 0, 0, 0, 0)
