"""Read JSON and YAML from untrusted files: any failure is a ValueError that names the file.

Only regular files are read: opening a FIFO would block.
"""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from burnish.util.safe_yaml import parse_yaml

KINDS = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device"}


def read_bytes(file: Path, largest: int | None = None) -> bytes:
    """The content of a regular file, or ValueError: missing, unreadable, larger than `largest`, or not a file at all.

    No more than `largest` bytes are taken into memory, whatever the size of the file was a moment ago.
    """
    try:
        number = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            what = stat.S_IFMT(os.fstat(number).st_mode)
            if what != stat.S_IFREG:
                raise ValueError(f"{file} is {KINDS.get(what, 'a device')}, not a regular file; restore the file")
            with os.fdopen(number, "rb", closefd=False) as opened:
                content = opened.read() if largest is None else opened.read(largest + 1)
        finally:
            os.close(number)
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror or error}") from None
    if largest is not None and len(content) > largest:
        raise ValueError(f"{file} has more than {largest:,} bytes, the most that are read; make it smaller")
    return content


def read_text(file: Path) -> str:
    """The text of a regular file, or ValueError: missing, unreadable, not UTF-8, or not a file at all."""
    try:
        return read_bytes(file).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not UTF-8 text; restore it from a copy") from None


def read_json(file: Path) -> Any:
    """The contents of a JSON file, or ValueError."""
    try:
        return json.loads(read_text(file))
    except json.JSONDecodeError as error:
        raise ValueError(f"{file} is not JSON ({error.msg} in line {error.lineno}); restore it from a copy") from None
    except RecursionError:
        raise ValueError(f"{file} is nested too deeply to be read as JSON; restore it from a copy") from None


def read_yaml(file: Path) -> object:
    """The contents of a YAML file, or ValueError. Aliases are expanded within limits (safe_yaml.py)."""
    text = read_text(file)
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise ValueError(f"{file} cannot be read: {error}") from None
