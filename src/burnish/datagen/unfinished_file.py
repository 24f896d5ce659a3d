"""A data file that is written prompt by prompt and can be continued: OUT.partial until it is complete, then OUT.

The partial file is JSONL: a line with the options, then one line for each prompt. A line that was cut by a crash is
removed when it is continued.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from burnish.datagen.preference_data import Made, Row
from burnish.util.files import sync_directory, sync_file

KINDS = (".jsonl", ".parquet")


class UnfinishedFile:
    """The rows made so far, on disk. Use it as a context manager; `finish` writes the file itself."""

    def __init__(self, out: Path, options: dict[str, Any]) -> None:
        if out.suffix not in KINDS:
            raise ValueError(f"--out {out} has the suffix {out.suffix!r}; the file ends in {' or '.join(KINDS)}")
        if out.exists():
            raise ValueError(f"{out} exists already; remove it, or give another --out")
        if not out.parent.is_dir():
            raise ValueError(f"--out {out}: there is no folder {out.parent}; create it first")
        self.out, self.options = out, options
        self.partial = out.with_name(f"{out.name}.partial")
        self.done = 0

    def __enter__(self) -> UnfinishedFile:
        if self.partial.exists():
            self.done = self._continue()
        else:
            self.partial.write_text(json.dumps(self.options) + "\n", encoding="utf-8")
        self._file = self.partial.open("a", encoding="utf-8")
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def add(self, made: list[Made]) -> None:
        for one in made:
            self._file.write(json.dumps(asdict(one), ensure_ascii=False) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())
        self.done += len(made)

    def all(self) -> Iterator[Made]:
        """What came of each prompt so far."""
        with self.partial.open(encoding="utf-8") as file:
            next(file)
            for line in file:
                yield Made(**json.loads(line))

    def finish(self, share: float = 1.0, order: Callable[[Row], float] | None = None) -> int:
        """Write the rows of all prompts to the file, at once, and remove the partial one; returns how many.

        share: of the rows, those with the largest `gap`, in their order; ties go to the earlier row
        order: by which rows are sorted, smallest first; ties stay in their order
        """
        aside = self.out.with_name(f".{self.out.name}.new")
        rows = [row for one in self.all() for row in one.rows]
        if share < 1:
            best = sorted(range(len(rows)), key=lambda i: (-rows[i].get("gap", 0.0), i))[: math.ceil(share * len(rows))]
            rows = [rows[i] for i in sorted(best)]
        rows = rows if order is None else sorted(rows, key=order)
        if self.out.suffix == ".parquet":
            write_parquet(aside, rows)
        else:
            with aside.open("w", encoding="utf-8") as file:
                file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        sync_file(aside)
        aside.rename(self.out)
        self.partial.unlink()
        sync_directory(self.out.parent)
        return len(rows)

    def _continue(self) -> int:
        """The number of prompts in the partial file, after a torn last line is removed."""
        data = self.partial.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if not whole:
            raise ValueError(f"{self.partial} is damaged: it has no first line; remove it to start again")
        if len(whole) < len(data):
            os.truncate(self.partial, len(whole))
        lines = whole.split(b"\n")[:-1]
        before = json.loads(lines[0])
        changed = [name for name in {**before, **self.options} if before.get(name) != self.options.get(name)]
        if changed:
            said = ", ".join(f"{name} {before.get(name)!r}, now {self.options.get(name)!r}" for name in changed)
            raise ValueError(
                f"{self.partial} was begun with other options ({said}); give the same ones to continue it, or remove it"
            )
        return len(lines) - 1


def write_parquet(file: Path, rows: list[Row]) -> None:
    """Rows that all have the same columns."""
    pyarrow, parquet = require_pyarrow()
    parquet.write_table(pyarrow.Table.from_pylist(rows), file)


def require_pyarrow() -> tuple[Any, Any]:
    """pyarrow and its parquet module; ValueError where it is not installed."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError("parquet files need pyarrow: pip install 'burnish[data]'; or use a .jsonl file") from None
    return pyarrow, pyarrow.parquet
