"""One-sentence messages for system errors: OSError, out of memory, SQLite errors, too deep nesting, overflow."""

from __future__ import annotations

import errno
import sqlite3
import sysconfig
import traceback
from pathlib import Path

LOST_RANK = 75  # exit code of a rank that ends because another one is lost


class LostRankError(Exception):
    """Another rank of this run was lost: the message is one sentence. quiet: another process says it to the user."""

    def __init__(self, sentence: str, quiet: bool = False) -> None:
        super().__init__(sentence)
        self.quiet = quiet


_ADVICE = {
    errno.EACCES: "choose a place that you may read and write, or change its permissions",
    errno.EPERM: "choose a place that you may read and write, or change its permissions",
    errno.EROFS: "choose a place that can be written, with --out for example",
    errno.ENOENT: "check the path",
    errno.ENOTDIR: "a part of the path is a file and not a folder; check the path",
    errno.EISDIR: "there is a folder where a file should be; check the path",
    errno.EEXIST: "remove what is there, or choose another path",
    errno.ELOOP: "its links lead in a circle; check the path",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOSPC: "free some disk space, or write somewhere else",
    errno.EDQUOT: "your quota is used up: free some disk space, or write somewhere else",
    errno.EFBIG: "a limit on the size of files is reached (ulimit -f); raise it",
    errno.EMFILE: "too many files are open; raise the limit (ulimit -n)",
    errno.ENFILE: "too many files are open on this machine; close some",
    errno.EIO: "the disk or the connection to it failed; check it",
    errno.ESTALE: "a network file system lost the file; mount it again",
}
_UNSET = ("without exception set", "without setting an exception")
_NO_MEMORY = (
    "can't allocate memory",
    "cannot allocate memory",
    "failed to map segment",
    "bad_alloc",
    "can't start new thread",
    "out of memory",
    "insufficient memory",
)
MEMORY = (
    "out of memory: lower --token-budget or --prompts, or add --checkpoint-activations; if a limit is set (ulimit -v), "
    "raise it."
)
DEEP = "the input is nested too deeply to be read (lists in lists, thousands of levels); write it with fewer levels."


LONGEST = 1000  # characters of a message that is repeated


def sentence(error: BaseException) -> str | None:
    """The message for an error of the system; None for any other error."""
    if out_of_memory(error):
        return MEMORY
    if isinstance(error, LostRankError):
        return str(error)
    if isinstance(error, OSError):
        what = error.strerror or str(error) or type(error).__name__
        names = [str(name)[:200] for name in (error.filename, error.filename2) if name is not None]
        where = " and ".join(names) or "standard output or a file"
        return f"cannot use {where}: {what}; {_ADVICE.get(error.errno or 0, 'check the path and the disk')}."
    if isinstance(error, sqlite3.Error):
        return f"a run store cannot be used: {error}; burnish doctor RUN says what is intact."
    if isinstance(error, RecursionError):
        return DEEP
    if isinstance(error, OverflowError):
        return f"a number is too large to compute with ({error}); give a smaller one."
    return None


def said(error: BaseException) -> str:
    """str(error), cut; of an error whose own __str__ raises, that."""
    try:
        text = str(error)
    except KeyboardInterrupt:
        raise  # Ctrl-C
    except BaseException as why:  # noqa: BLE001 - classes of users may do anything, sys.exit() too
        return f"its message cannot be read: {type(why).__name__}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} ... ({len(text):,} characters)"


def place_of(error: BaseException) -> str:
    """The last line of a user's own file that an error passed, as " at file.py, line 12"; empty where there is none.

    A user's file is none of burnish's, of an installed package or of Python's library.
    """
    ours = Path(__file__).resolve().parents[1]
    others = {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename).resolve()
        if file.is_file() and not any(file.is_relative_to(folder) for folder in (ours, *others)):
            return f" at {file.name}, line {frame.lineno}"
    return ""


def shown(value: object, most: int = 80) -> str:
    """repr(value), cut; of a value whose own __repr__ raises, its type. Numbers too long to be printed have none."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - classes of users may do anything; int has a limit of 4,300 digits
        return f"a {type(value).__name__} that cannot be printed"
    return text if len(text) <= most else f"{text[:most]}..."


def out_of_memory(error: BaseException) -> bool:
    """Whether an error, or its cause, means that the machine or a GPU is out of memory."""
    earlier = error.__cause__ or error.__context__
    if earlier is not None and isinstance(error, RuntimeError) and out_of_memory(earlier):
        return True
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    if isinstance(error, SystemError):  # a library in C that did not look at what malloc gave it
        return any(words in str(error) for words in _UNSET)
    text = str(error).lower() if isinstance(error, (RuntimeError, ImportError)) or _of_safetensors(error) else ""
    return any(words in text for words in _NO_MEMORY)


def _of_safetensors(error: BaseException) -> bool:
    return type(error).__name__ == "SafetensorError"
