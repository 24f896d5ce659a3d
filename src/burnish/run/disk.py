"""Files that cannot be half written: aside, flushed to the disk, then renamed; and how much room there is for them."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError

PARTIAL, OLD = ".partial", ".old"  # endings of directories that are being written, or on their way out


def write_text(file: Path, text: str) -> None:
    """A whole file or none: whoever reads it, or kills us, sees the old text or the new one."""
    aside = file.with_name(f".{file.name}{PARTIAL}")
    with aside.open("w") as out:
        out.write(text)
        out.flush()
        os.fsync(out.fileno())
    aside.replace(file)
    sync_directory(file.parent)


@contextlib.contextmanager
def whole_directory(final: Path) -> Iterator[Path]:
    """A directory to write into that takes its final name only when all of it has reached the disk.

    A failure leaves what was there before, and is told in one sentence.
    """
    aside = final.with_name(f".{final.name}{PARTIAL}")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        aside.mkdir(parents=True)
        yield aside
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
        shutil.rmtree(old, ignore_errors=True)


def could_not_save(final: Path, why: str) -> str:
    """The one sentence for every reason for which nothing could be written."""
    return f"could not save {final}: {why}; nothing saved earlier was touched. Free some disk space and use --resume"


def remove_directory(path: Path) -> None:
    """Take a directory away at once: it loses its name before its first file, so that it is never seen in part."""
    old = _out_of_the_way(path)
    if old is not None:
        shutil.rmtree(old, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what an earlier process left half written or half removed in a folder."""
    for path in folder.glob(".*"):
        if path.name.endswith((PARTIAL, OLD)):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def free_bytes(path: Path) -> int:
    """The room on the disk that holds a path, which need not exist yet."""
    while not path.exists():
        path = path.parent
    return shutil.disk_usage(path).free


def sync_directory(path: Path) -> None:
    """Make new names in a directory durable; where directories cannot be opened there is nothing to do."""
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
    """Wait until the disk has a file's content."""
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def step_back() -> None:
    """Let this thread have what the others leave: hashing and flushing can wait. Linux alone knows priorities of threads."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)


def _sync_all(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        sync_directory(path) if path.is_dir() else sync_file(path)
    sync_directory(folder)


def _out_of_the_way(path: Path) -> Path | None:
    if not path.exists():
        return None
    old = path.with_name(f".{path.name}{OLD}")
    shutil.rmtree(old, ignore_errors=True)
    return path.rename(old)
