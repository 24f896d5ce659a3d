"""Atomic writes of files and directories (temporary name, fsync, rename), and free disk space."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

MOST_ENTRIES = 50_000  # files and folders of one dataset
PARTIAL, OLD = ".partial", ".old"  # suffixes of directories that are being written, or being removed


def read_json(file: Path) -> dict[str, Any] | None:
    """A file's JSON object; None where it holds none."""
    try:
        value = json.loads(file.read_text())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_text(file: Path, text: str) -> None:
    """Write a file atomically: readers see the old text or the new one, also if this process is killed."""
    aside = file.with_name(f".{file.name}{PARTIAL}")
    with aside.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    aside.replace(file)
    sync_directory(file.parent)


@contextlib.contextmanager
def whole_directory(final: Path) -> Iterator[Path]:
    """A temporary directory to write into, renamed to `final` after everything is on disk.

    A failure leaves the previous directory unchanged; OSError becomes ValueError with one sentence.
    """
    aside = final.with_name(f".{final.name}{PARTIAL}")
    _remove(aside)
    try:
        aside.mkdir()  # without parents: a deleted run folder must not reappear with one checkpoint in it
        with _still_there(aside):
            yield aside
        _follow_umask(aside)
        _sync_all(aside)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(aside, ignore_errors=True)
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise ValueError(could_not_save(final, str(why))) from None
    except BaseException:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    old = _out_of_the_way(final)
    aside.rename(final)
    sync_directory(final.parent)
    if old is not None:
        _remove(old)


@contextlib.contextmanager
def _still_there(directory: Path) -> Iterator[None]:
    """Raise FileNotFoundError if the directory was deleted or moved inside the block, and remove what replaced it.

    Libraries create the folders that they write into, parents included: a run folder that its user deletes during a
    save would reappear with one checkpoint in it. The open descriptor keeps the inode number from being used again.
    """
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield
    finally:
        try:
            same = directory.exists() and os.path.samestat(os.fstat(descriptor), directory.stat())
        finally:
            os.close(descriptor)
        if not same:
            shutil.rmtree(directory, ignore_errors=True)
            with contextlib.suppress(OSError):  # the end of the parents that the library made: the first in use stays
                for parent in directory.parents[:2]:
                    parent.rmdir()
    if not same:
        raise FileNotFoundError(errno.ENOENT, "the folder was deleted or moved meanwhile", str(directory))


def could_not_save(final: Path, why: str) -> str:
    """The error message for a failed save."""
    return f"could not save {final}: {why}; nothing saved earlier was touched. Free some disk space and use --resume"


def remove_directory(path: Path) -> None:
    """Remove a directory; it is renamed first, so that readers never see a part of it."""
    old = _out_of_the_way(path)
    if old is not None:
        _remove(old)


def sweep(folder: Path) -> None:
    """Remove partly written or partly removed entries that an earlier process left in a folder."""
    for path in folder.glob(".*"):
        if is_partial(path):
            _remove(path)


def is_partial(path: Path) -> bool:
    """Whether a path has a temporary name of this module."""
    return path.name.startswith(".") and path.name.endswith((PARTIAL, OLD))


def free_bytes(path: Path) -> int:
    """Free bytes on the disk that holds a path, which need not exist yet."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free


def sync_directory(path: Path) -> None:
    """fsync a directory, so that new names in it are durable; does nothing if directories cannot be opened."""
    try:
        place = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        with contextlib.suppress(OSError):  # some file systems refuse it
            os.fsync(place)
    finally:
        os.close(place)


def sync_file(file: Path) -> None:
    """fsync a file."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def files_below(folder: Path) -> list[Path]:
    """The regular files below a folder, sorted; ValueError for a folder like `/`, which would be read for minutes."""
    files: list[Path] = []
    entries = 0
    for place, folders, names in os.walk(folder):
        entries += len(folders) + len(names)
        if entries > MOST_ENTRIES:
            raise ValueError(
                f"folder {folder} holds more than {MOST_ENTRIES:,} files; name the folder of the data itself"
            )
        files += [Path(place, name) for name in names if os.path.isfile(os.path.join(place, name))]
    return sorted(files)


def step_back() -> None:
    """Lower this thread's priority, for background hashing and flushing; never the main thread's. Linux only."""
    if sys.platform == "linux" and threading.current_thread() is not threading.main_thread():
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def _follow_umask(folder: Path) -> None:
    """Give every file the mode that a new file has: safetensors writes files that their owner alone can read."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            path.chmod(folder.stat().st_mode & 0o666)  # mkdir followed the umask


def _sync_all(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        sync_directory(path) if path.is_dir() else sync_file(path)
    sync_directory(folder)


def _out_of_the_way(path: Path) -> Path | None:
    if not os.path.lexists(path):
        return None
    old = path.with_name(f".{path.name}{OLD}")
    _remove(old)
    return path.rename(old)


def _remove(path: Path) -> None:
    """Remove a directory tree, or a file, FIFO or link of this name."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
