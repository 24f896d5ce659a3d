"""One writer for each run folder: a POSIX record lock on RUN/run.lock, which the kernel releases when its process dies.

Why `lockf` (POSIX record locks) and not `flock`, a pid file or SQLite's own lock:
  - the kernel releases it when the process ends, by `kill -9` too, so that no lock is ever stale;
  - NFS carries it between machines; `flock` is local to one machine on some NFS clients;
  - a child made by fork does not inherit it, so a forked child that lives on cannot keep the folder locked.
It has two weaknesses, which this module handles:
  - it does not exclude threads of one process: the files that this process holds are listed in `_HELD`;
  - it is lost when the process closes any descriptor of the file, for example after copying the folder: `confirm`,
    which the run calls at every step, takes it again, or ends the run if another process has it by then.

The file names its holder (process, machine, start, command) as JSON, for the error that a second process gets. Two
bytes are locked separately: a run on Ray is owned by its driver (byte 0) and written by its trainer (byte 1).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shlex
import stat
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from burnish.store.environment import process

NAME = "run.lock"
RUN, DRIVER, TRAINER = (0, 2), (0, 1), (1, 1)  # the first locked byte, and how many
TRAINER_SECONDS = 30.0  # how long a new trainer waits for the lock of the trainer that was just killed
_TAKEN = (errno.EACCES, errno.EAGAIN)
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)  # a file system without locks

_HELD: dict[tuple[int, int, tuple[int, int]], int] = {}  # device, inode and bytes of each held file -> process
_LISTING = threading.RLock()


@dataclass
class RunLock:
    """The lock on one run folder, held until `release` or the end of this process.

    works: False on a file system without locks; then nothing is guarded, and the run warns about it.
    """

    folder: Path
    part: tuple[int, int]
    number: int = -1
    key: tuple[int, int, tuple[int, int]] | None = None
    place: tuple[int, int] = (0, 0)
    pid: int = 0
    works: bool = True

    @classmethod
    def take(cls, folder: Path, part: tuple[int, int] = RUN) -> RunLock:
        """Lock an existing folder; raise ValueError, naming the holder, if another process has it."""
        lock = cls(folder, part, pid=os.getpid())
        try:
            lock.place = _identity(os.stat(folder))
            deadline = time.monotonic() + (TRAINER_SECONDS if part == TRAINER else 0.0)
            while not lock._try():
                if time.monotonic() > deadline:
                    raise ValueError(_held(folder, part))
                time.sleep(0.1)
        except OSError as error:
            raise ValueError(
                f"cannot lock the run folder {folder} ({error.strerror}): a run writes {NAME} there; make the folder "
                "writable, or copy it to a place that is"
            ) from None
        return lock

    def confirm(self) -> None:
        """Raise ValueError if the folder was deleted, moved or replaced, or another process has locked it since."""
        if self.pid != os.getpid():
            return
        try:
            same = _identity(os.stat(self.folder)) == self.place
        except OSError:
            same = False
        if not same:
            raise ValueError(
                f"the run folder {self.folder} was deleted, moved or replaced while the run was writing into it, so "
                f"the run stops; put the folder back and use --resume {self.folder}, or start the run again"
            )
        if not self.works:
            return
        try:
            if _identity(os.lstat(self.folder / NAME)) == _identity(os.fstat(self.number)):
                if _lock(self.number, self.part):
                    return
                self._forget()
                raise ValueError(_held(self.folder, self.part))
        except FileNotFoundError:
            pass
        self._forget()  # run.lock was deleted by hand: make it again
        if not self._try():
            raise ValueError(_held(self.folder, self.part))

    def release(self) -> None:
        """Release the lock and remove run.lock. A forked child of the holder releases nothing."""
        if self.pid != os.getpid() or self.number < 0:
            return
        if self.part != TRAINER:
            with contextlib.suppress(OSError):
                if _identity(os.lstat(self.folder / NAME)) == _identity(os.fstat(self.number)):
                    os.unlink(self.folder / NAME)
        self._forget()

    def __enter__(self) -> RunLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _try(self) -> bool:
        file = self.folder / NAME
        with _LISTING:
            if _held_here(file, self.part):
                return False
            number = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
            try:
                opened = os.fstat(number)
                if not stat.S_ISREG(opened.st_mode):
                    raise ValueError(f"{file} is not a regular file; remove it, and try again")
                self.works = _lockable(number)
                if self.works and not _lock(number, self.part):
                    os.close(number)
                    return False
                if self.part == DRIVER and self.works:  # a trainer of an earlier driver may still be writing
                    free = _lock(number, TRAINER)
                    if not free:
                        os.close(number)
                        return False
                    fcntl.lockf(number, fcntl.LOCK_UN, TRAINER[1], TRAINER[0])
                if _identity(os.lstat(file)) != _identity(opened):  # its last holder removed it in the meantime
                    os.close(number)
                    return self._try()
            except FileNotFoundError:
                os.close(number)
                return self._try()
            except BaseException:
                with contextlib.suppress(OSError):
                    os.close(number)
                raise
            self.number, self.key = number, (*_identity(opened), self.part)
            _HELD[self.key] = os.getpid()
            if self.part != TRAINER:
                about = {**process(), "command": [Path(sys.argv[0]).name, *sys.argv[1:]]}
                os.ftruncate(number, 0)
                os.pwrite(number, (json.dumps(about) + "\n").encode(errors="replace"), 0)
            return True

    def _forget(self) -> None:
        with _LISTING:
            if self.key is not None:
                _HELD.pop(self.key, None)
            if self.number >= 0:
                os.close(self.number)
            self.number, self.key = -1, None


def holder(folder: Path) -> dict[str, object]:
    """The holder named in run.lock: pid, host, since, command; empty if the file cannot be read."""
    if _held_here(folder / NAME, RUN):  # opening and closing the file here would release the lock
        return process()
    try:
        number = os.open(folder / NAME, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return {}
    try:
        owner = json.loads(os.read(number, 65536)) if stat.S_ISREG(os.fstat(number).st_mode) else {}
    except (OSError, ValueError, RecursionError):
        owner = {}
    finally:
        os.close(number)
    return owner if isinstance(owner, dict) else {}


def _held_here(file: Path, part: tuple[int, int]) -> bool:
    """Whether this process holds these bytes of a file. It is not opened, because closing it would release the lock."""
    try:
        identity = _identity(os.lstat(file))
    except OSError:
        return False
    return any(
        key[:2] == identity and pid == os.getpid() and _overlap(key[2], part) for key, pid in list(_HELD.items())
    )


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[0] + other[1] and other[0] < one[0] + one[1]


def _lock(number: int, part: tuple[int, int]) -> bool:
    try:
        fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB, part[1], part[0])
    except OSError as error:
        if error.errno in _TAKEN:
            return False
        raise
    return True


def _lockable(number: int) -> bool:
    """Whether the file system supports locks: tries one on a byte that no run uses."""
    try:
        fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 7)
        fcntl.lockf(number, fcntl.LOCK_UN, 1, 7)
    except OSError as error:
        return error.errno not in _NO_LOCKS
    return True


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _held(folder: Path, part: tuple[int, int]) -> str:
    """The error for a folder that is locked: names the holder."""
    if _held_here(folder / NAME, part):
        return f"the run folder {folder} is being written by this process already; wait until that run has ended"
    owner = holder(folder)
    since = owner.get("since")
    began = f" since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(since))}" if isinstance(since, float) else ""
    words = owner.get("command")
    command = f" ({shlex.join(map(str, words))[:200]})" if isinstance(words, list) and words else ""
    name = f"process {owner.get('pid', '?')} on {owner.get('host', '?')}" if owner else "another process"
    return (
        f"the run folder {folder} is being written by {name}{began}{command}; a run has one writer: wait until it has "
        "ended, or stop it, and try again"
    )
