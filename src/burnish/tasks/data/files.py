"""From the name of a file, a folder or a hub dataset to its rows, by split."""

from __future__ import annotations

import csv
import errno
import lzma
import re
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from burnish.tasks.data import arrow
from burnish.tasks.data.layout import split_files
from burnish.tasks.data.lines import OPENERS, Lines, json_line, open_bytes, open_text, spooled, text_line
from burnish.tasks.data.parse import parse_json
from burnish.tasks.data.rows import ListRows, Rows, joined
from burnish.util.files import files_below
from burnish.util.paths import expanded

HUB_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?(?::([\w.+-]+))?")  # owner/name@revision:config


def _jsonl(path: Path) -> Rows:
    return Lines(open_bytes(path), str(path), json_line)


def _text(path: Path) -> Rows:
    return Lines(open_bytes(path), str(path), text_line)


def _json(path: Path) -> Rows:
    with open_text(path) as file:
        text = file.read()
    content = parse_json(text, str(path), "one object a line is .jsonl")
    if isinstance(content, dict):  # {"data": [...]}: use the only list inside
        lists = [value for value in content.values() if isinstance(value, list)]
        content = lists[0] if len(lists) == 1 else content
    if not isinstance(content, list):
        raise ValueError(f"{path}: holds a JSON {type(content).__name__}, not a list of rows; write [{{...}}, {{...}}]")
    return ListRows(content, str(path))


def _csv(path: Path, delimiter: str = ",") -> Rows:
    with open_text(path) as lines:
        return spooled(_cells(path, lines, delimiter), str(path))


def _cells(path: Path, lines: Any, delimiter: str) -> Iterator[dict[str, Any]]:
    """The rows of a CSV file; an empty cell is null."""
    csv.field_size_limit(2**31 - 1)
    reader = csv.DictReader(lines, delimiter=delimiter, strict=True)
    twice = [name for name, count in Counter(reader.fieldnames or ()).items() if count > 1 and name]
    if twice:
        raise ValueError(f"{path}: the header has the column {twice[0]!r} twice; rename one of them")
    (alone, *others) = reader.fieldnames or ("",)
    apart = next((mark for mark in (";", "\t", "|") if mark in alone and mark != delimiter), None)
    if apart and not others:
        raise ValueError(
            f"{path}: the header is one cell, {alone[:60]!r}; separate cells by {delimiter!r} instead of {apart!r}"
            + (", or call the file .tsv" if apart == "\t" else "")
        )
    number, line = 0, reader.line_num
    try:
        for number, row in enumerate(reader, 1):
            if None in row:
                raise ValueError(f"{path}, row {number}: has more cells than the header; quote cells that hold commas")
            line = reader.line_num
            yield {name: cell or None for name, cell in row.items()}
    except csv.Error as error:
        why = "its quotation mark is never closed" if "end of data" in str(error) else str(error)
        raise ValueError(f"{path}, row {number + 1} (line {line + 1}): {why}; correct the row") from None


READERS: dict[str, Callable[[Path], Rows]] = {
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".json": _json,
    ".parquet": arrow.parquet,
    ".csv": _csv,
    ".tsv": partial(_csv, delimiter="\t"),
    ".txt": _text,
}
KINDS = f"{', '.join(READERS)} (also with {', '.join(OPENERS)})"


def reader_of(name: str) -> Callable[[Path], Rows] | None:
    """The function that reads files of this name; None for other kinds."""
    base = Path(name)
    packed = base.suffix.lower() in OPENERS
    suffix = (Path(base.stem).suffix if packed else base.suffix).lower()
    return None if suffix == ".parquet" and packed else READERS.get(suffix)


def read_file(path: Path) -> Rows:
    """The rows of one file."""
    read = reader_of(path.name)
    if read is None:
        own = f"; an environment in it is {path}:CLASS" if path.suffix == ".py" else ""
        raise ValueError(f"{path}: unknown kind of file; the kinds that can be read are {KINDS}{own}")
    try:
        return read(path)
    except (EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{path}: is damaged, or not a {path.suffix} file ({error}); write it again") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: cannot be read as UTF-8 text ({error}); write it again") from None
    except OSError as error:
        if (
            path.suffix.lower() in OPENERS and error.errno is None
        ):  # gzip, bz2 and zstd say so of what they cannot unpack
            raise ValueError(f"{path}: is damaged, or not a {path.suffix} file ({error}); write it again") from None
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ValueError(
                f"{path}: its rows are copied into {tempfile.gettempdir()}, where no space is left; free some, or set "
                "TMPDIR to another folder"
            ) from None
        raise ValueError(f"{path}: cannot be read ({error.strerror or error}); check the file") from None
    except csv.Error as error:
        raise ValueError(f"{path}: cannot be read as CSV ({error}); write it again") from None


def read_folder(path: Path, config: str | None = None, name: str | None = None) -> dict[str, Rows]:
    """The rows of a folder's files, by split. name: what the user calls it, if not by its path."""
    if any((path / own).exists() for own in ("dataset_dict.json", "state.json")):
        return dict(arrow.saved_to_disk(path))
    files = [file.relative_to(path).as_posix() for file in files_below(path)]
    card = path / "README.md"
    text = card.read_text(encoding="utf-8", errors="replace") if card.is_file() else None
    parts = split_files(readable(files), text, config, name or str(path))
    if not parts:
        raise ValueError(
            f"{'folder' if name is None else 'dataset'} {name or path} holds no dataset; it should hold "
            f"{', '.join(READERS)} files"
        )
    return {split: joined([read_file(path / file) for file in wanted]) for split, wanted in parts.items()}


def readable(files: list[str]) -> list[str]:
    """Those of the paths that hold rows: not hidden files, cards and lists of requirements."""
    return [
        file
        for file in files
        if reader_of(file)
        and not any(part.startswith((".", "__")) for part in Path(file).parts)
        and Path(file).name not in ("dataset_infos.json", "requirements.txt", "LICENSE.txt")
    ]


def read_rows(name: str) -> dict[str, Rows]:
    """All rows of a file, a folder or a hub dataset (owner/name@revision:config), by split."""
    path = expanded(name)
    if path.is_dir():
        return read_folder(path)
    if path.is_file():
        return {"train": read_file(path)}
    found = HUB_NAME.fullmatch(name)
    if reader_of(path.name) or found is None or name.startswith((".", "~")):
        first = re.split(r"[:;+ ]", name)[0]
        if first != name and expanded(first).is_file():
            raise ValueError(f"no file or folder {name!r}; several datasets are written a.jsonl*0.7,b.jsonl*0.3")
        raise ValueError(f"no file or folder {name!r}; check the path (it is looked up from {Path.cwd()})")
    from burnish.tasks.data.hub import download

    return read_folder(download(*found.groups()), found[3], name)
