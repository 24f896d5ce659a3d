"""Rows of Parquet files and of the `datasets` library, through Arrow."""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from burnish.tasks.data.batches import BatchFile, write_batches
from burnish.tasks.data.cache import FOLDER, State, content, state
from burnish.util.private_cache import private_folder

IN_MEMORY = 1 << 28  # bytes of Arrow data that are kept in memory; more is copied into the cache, in small batches
UNUSED_DAYS = 30  # after which a copy in the cache is removed
BATCH = 128  # rows of a batch in the cache: what is read for one row


class ArrowRows:
    """Rows of a table in batches; a batch is read for each row that is asked for.

    batches: number of a batch -> the batch
    """

    def __init__(self, batches: Any, sizes: list[int], name: str) -> None:
        self._batches, self._name = batches, name
        self._ends = np.cumsum(sizes)
        self._one_reader = threading.Lock()

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = int(np.searchsorted(self._ends, index, side="right"))
        start = int(self._ends[number - 1]) if number else 0
        with self._one_reader:
            return self._batches(number).slice(index - start, 1).to_pylist()[0]

    def __iter__(self) -> Iterator[Any]:
        for number in range(len(self._ends)):
            with self._one_reader:
                rows = self._batches(number).to_pylist()
            yield from rows

    def where(self, index: int) -> str:
        return f"{self._name}, row {index + 1}"


def parquet(path: Path) -> ArrowRows:
    """The rows of a Parquet file: in memory as Arrow data, or from a copy in the cache where they are many.

    A row group is often the whole file, so that reading one row of it costs as much as reading all. The copy holds
    the rows in batches of BATCH, written once.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError(f"reading {path} needs pyarrow; install it with: pip install 'burnish[data]'") from None
    try:
        before = state(path)
        file = pyarrow.parquet.ParquetFile(path)
        meta = file.metadata
        size = sum(meta.row_group(i).total_byte_size for i in range(meta.num_row_groups))
        if size <= IN_MEMORY:
            batches = list(file.iter_batches(batch_size=1024))
            return ArrowRows(batches.__getitem__, [batch.num_rows for batch in batches], str(path))
        copy = _copied(file, path, before)
        return ArrowRows(copy, copy.rows, str(path))
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path}: not a readable Parquet file ({error}); write it again") from None


def _copied(file: object, path: Path, before: State) -> BatchFile:
    """The rows of a Parquet file in small batches: a copy in the cache, by the content of the file, or, where the
    cache cannot hold one, a temporary copy for this process. before: the state of the file when it was opened.
    """
    cached = private_folder(FOLDER)
    source = content(path) if cached is not None else "0" * 64
    name = f"{source[:32]}.arrow"
    if cached is not None:
        _remove_unused(cached)
        try:
            found = BatchFile(cached / name, source)
            with contextlib.suppress(OSError):
                os.utime(cached / name)
            return found
        except (OSError, ValueError):  # there is none, or it is damaged: it is written again
            pass
        try:
            return _write_copy(file, cached / name, source, path, before)
        except OSError:  # a full disk, or one that cannot be written
            pass
    folder = Path(tempfile.mkdtemp(prefix="burnish-data-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return _write_copy(file, folder / name, source, path, before)


def _write_copy(file: object, copy: Path, source: str, path: Path, before: State) -> BatchFile:
    """Write the rows as a file of small batches, in a stream. source: the hash of the file that they are from."""
    aside = copy.with_suffix(f".{os.getpid()}.partial")
    try:
        write_batches(aside, _small_batches(file), source)
        if state(path) != before:
            raise ValueError(f"{path}: changed while its rows were read; start again when it is complete")
        aside.replace(copy)
        return BatchFile(copy, source)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def _small_batches(file: Any) -> Iterator[Any]:
    """The rows of a Parquet file in batches of BATCH."""
    import pyarrow

    held = pyarrow.table({name: [] for name in file.schema_arrow.names}, schema=file.schema_arrow)
    groups = range(file.metadata.num_row_groups)  # one at a time: together they would be read ahead
    for batch in (b for group in groups for b in file.iter_batches(batch_size=64 * BATCH, row_groups=[group])):
        held = pyarrow.concat_tables([held, pyarrow.Table.from_batches([batch])]).combine_chunks()
        whole = len(held) - len(held) % BATCH
        for start in range(0, whole, BATCH):
            yield held.slice(start, BATCH).combine_chunks().to_batches()[0]
        held = held.slice(whole)
    if len(held):
        yield held.combine_chunks().to_batches()[0]


def _remove_unused(folder: Path) -> None:
    """Remove copies that no run has read for UNUSED_DAYS, and what killed processes began to write."""
    for file in (*folder.glob("*.arrow"), *folder.glob("*.partial")):
        with contextlib.suppress(OSError):
            if time.time() - file.stat().st_mtime > UNUSED_DAYS * 86400:
                file.unlink()


class DatasetRows:
    """Rows of a `datasets.Dataset`, which maps its files into memory itself."""

    def __init__(self, table: Any, name: str) -> None:
        self._table, self._name = _undecoded(table), name

    def __len__(self) -> int:
        return len(self._table)

    def __getitem__(self, index: int) -> Any:
        return self._table[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._table)

    def where(self, index: int) -> str:
        return f"{self._name}, row {index + 1}"


def _undecoded(table: Any) -> Any:
    """The table with its pictures as the bytes of their files: they are decoded within limits, when they are read."""
    features = getattr(table, "features", None) or {}
    kinds = {name: type(feature).__name__ for name, feature in features.items()}
    inside = {name: type(getattr(feature, "feature", None)).__name__ for name, feature in features.items()}
    if "Image" not in {*kinds.values(), *inside.values()}:
        return table
    import datasets

    for name in features:
        if kinds[name] == "Image":
            table = table.cast_column(name, datasets.Image(decode=False))
        elif inside[name] == "Image":
            table = table.cast_column(name, [datasets.Image(decode=False)])
    return table


def saved_to_disk(path: Path) -> dict[str, DatasetRows]:
    """A folder that `Dataset.save_to_disk` wrote, by split."""
    try:
        import datasets
    except ImportError:
        raise ValueError(f"reading {path} needs datasets; install it with: pip install 'burnish[data]'") from None
    try:
        loaded = datasets.load_from_disk(str(path))
    except Exception as error:  # the library raises many kinds of errors; all mean that there are no rows
        why = str(error).strip().partition("\n")[0]
        raise ValueError(
            f"cannot load dataset {str(path)!r} ({type(error).__name__}: {why}); check the folder"
        ) from error
    parts = dict(loaded) if isinstance(loaded, datasets.DatasetDict) else {"train": loaded}
    return {str(split): DatasetRows(table, str(path)) for split, table in parts.items()}
