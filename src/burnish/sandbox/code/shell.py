"""The role of a process that runs a command line of a shell in a folder: it is filled, changed, and reported as it is.

The folder is the working folder of the sandbox, in memory. Programs of the system may be started (confine.py); what is
still running when the command has ended is killed (zygote.py), so nothing outlives a call.
"""

from __future__ import annotations

import base64
import os
import stat
import sys
from collections.abc import Mapping
from typing import TypedDict

from burnish.sandbox.code.load import report
from burnish.sandbox.code.root import SCRATCH

SHELLS = ("/bin/bash", "/bin/sh")
# The folder in which the command ended goes to descriptor 9, also where it ends by `exit`.
_SCRIPT = 'trap "pwd -P >&9" EXIT; cd -- "$1" 2>/dev/null || cd -- "$HOME"; eval "$2"'
_THERE = 9
_TIME = 1_577_836_800  # of all files at the start of a call, so that `ls -l` repeats itself: 2020-01-01


class Entry(TypedDict, total=False):
    """A file (its bytes in base64, and whether it is executable), a link, or a folder, which has none of these."""

    data: str
    executable: bool
    link: str


def run(data: Mapping[str, object], reporter: int, printed: int) -> None:
    """Fill the folder, run the command in it, report {"status": ..., "folder": ..., "files": {...}}."""
    files, here, command = data["files"], str(data["folder"]), str(data["command"])
    assert isinstance(files, Mapping)
    fill(SCRATCH, files)
    for descriptor in (reporter, printed):
        os.set_inheritable(descriptor, False)
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    shell = next(name for name in SHELLS if os.path.exists(name))
    pid = os.posix_spawn(
        shell,
        [shell, "-c", _SCRIPT, "sh", here, command],
        _environment(),
        file_actions=[
            (os.POSIX_SPAWN_DUP2, printed, 1),
            (os.POSIX_SPAWN_DUP2, printed, 2),
            (os.POSIX_SPAWN_DUP2, writer, _THERE),
        ],
    )
    os.close(writer)
    _, status = os.waitpid(pid, 0)
    try:
        there = os.read(reader, 4096).decode("utf-8", "replace").rstrip("\n").rpartition("\n")[2]
    except BlockingIOError:  # a process that still runs holds the pipe, and nothing was written
        there = here
    report(reporter, {"status": os.waitstatus_to_exitcode(status), "folder": there, "files": tree(SCRATCH)})


def _environment() -> dict[str, str]:
    who = {f"GIT_{role}_{what}": f"agent{at}" for role in ("AUTHOR", "COMMITTER") for what, at in _NAMES}
    return {
        "PATH": f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": SCRATCH,
        "TMPDIR": SCRATCH,
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_PAGER": "cat",
        **who,
    }


_NAMES = (("NAME", ""), ("EMAIL", "@localhost"))


def fill(root: str, files: Mapping[str, Entry]) -> None:
    """Make these files below a folder."""
    for path, entry in sorted(files.items()):
        place = os.path.join(root, path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if "link" in entry:
            os.symlink(entry["link"], place)
            continue
        if "data" not in entry:
            os.makedirs(place, exist_ok=True)
            continue
        with open(place, "wb") as file:
            file.write(base64.b64decode(entry["data"]))
        if entry.get("executable"):
            os.chmod(place, 0o755)
    for path in sorted(files, reverse=True):  # folders after what is in them
        os.utime(os.path.join(root, path), (_TIME, _TIME), follow_symlinks=False)


def tree(root: str) -> dict[str, Entry]:
    """What is below a folder, by path; pipes and the like are left out."""
    entries: dict[str, Entry] = {}
    for folder, folders, names in os.walk(root):
        for name in [*folders, *names]:
            place = os.path.join(folder, name)
            about = os.lstat(place)
            path = os.path.relpath(place, root)
            if stat.S_ISLNK(about.st_mode):
                entries[path] = {"link": os.readlink(place)}
            elif stat.S_ISDIR(about.st_mode):
                entries[path] = {}
            elif stat.S_ISREG(about.st_mode):
                try:
                    with open(place, "rb") as file:
                        entries[path] = {"data": base64.b64encode(file.read()).decode()}
                except PermissionError:  # chmod 000
                    continue
                if about.st_mode & stat.S_IXUSR:
                    entries[path]["executable"] = True
    return entries
