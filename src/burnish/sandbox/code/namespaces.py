"""Namespaces of the zygote: it sees no process, no network and no file of the machine but what is shown to it."""

from __future__ import annotations

import os
from pathlib import Path

from burnish.sandbox.code import kernel

NOBODY = 65534
HOST = "sandbox"  # the name of the machine, inside
PROGRAM_USER = 1000  # as which programs run, inside, where the zygote could be started by root


def enter() -> None:
    """Enter new user, process, network, IPC and host-name namespaces; the next fork is the first process inside.

    Inside, this process is root of nothing but these namespaces. Started by root, it also gets the user PROGRAM_USER,
    which is `nobody` outside. Another process has to write that, one that stays outside. Raises OSError.
    """
    ready_reader, ready_writer = os.pipe()
    writer = os.fork()
    if not writer:
        os.close(ready_writer)
        status = 1
        if os.read(ready_reader, 1):
            status = _write_maps(os.getppid())
        os._exit(status)
    os.close(ready_reader)
    flags = kernel.NEW_USER | kernel.NEW_PIDS | kernel.NEW_NETWORK | kernel.NEW_IPC | kernel.NEW_UTS
    try:
        kernel.unshare(flags)
        kernel.set_host_name(HOST)
        os.write(ready_writer, b"1")
    finally:
        os.close(ready_writer)
        _, status = os.waitpid(writer, 0)
    if status:
        raise OSError("the user map of the namespace could not be written")


def _write_maps(pid: int) -> int:
    """Write the user and group map of a process; 0 if it worked."""
    user, group = os.geteuid(), os.getegid()
    try:
        where = Path(f"/proc/{pid}")
        if user:
            (where / "setgroups").write_text("deny")
        extra = f"\n{PROGRAM_USER} {NOBODY} 1" if not user else ""
        (where / "uid_map").write_text(f"0 {user} 1{extra}")
        (where / "gid_map").write_text(f"0 {group} 1{extra}")
    except OSError:
        return 1
    return 0
