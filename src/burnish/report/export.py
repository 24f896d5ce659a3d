"""Export a run's tables as parquet, jsonl or csv."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from burnish.store.reader import RunStore
from burnish.store.records import TraceTokens

Rows = Iterator[Mapping[str, object]]
BATCH = 2000  # rows in memory at once


def export(store: RunStore, folder: Path, kind: str) -> dict[str, int]:
    """Write metrics, timings, traces (with tokens) and events to FOLDER/NAME.KIND; returns the rows of each."""
    if kind not in WRITERS:
        raise ValueError(f"cannot export to {kind!r}; the kinds are {', '.join(WRITERS)}")
    folder.mkdir(parents=True, exist_ok=True)
    tables: dict[str, Rows] = {
        "metrics": iter(store.metrics()),
        "timings": iter(store.timings()),
        "events": iter(store.events()),
        "traces": _traces(store),
    }
    return {name: WRITERS[kind](rows, folder / f"{name}.{kind}") for name, rows in tables.items()}


def _traces(store: RunStore) -> Rows:
    """Every trace with its tokens; nested values are JSON text, so that all rows have the same columns."""
    start = 0
    while page := store.sql("SELECT id FROM traces WHERE id > ? ORDER BY id LIMIT ?", start, BATCH):
        for row in page:
            trace: dict[str, Any] = {**store.trace(row["id"])}
            tokens: TraceTokens = trace.pop("tokens")
            nested = ("turns", "scores", "turn_scores", "tags", "note", "given")
            for name in nested:
                trace[name] = json.dumps(trace[name], ensure_ascii=False)
            yield {**trace, "ids": tokens["ids"], "logp": tokens["logp"], "streams": json.dumps(tokens["streams"])}
        start = page[-1]["id"]


def _jsonl(rows: Rows, path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def _csv(rows: Rows, path: Path) -> int:
    """Write CSV with the union of the rows' columns, in the order of first appearance."""
    all_rows = list(rows)
    columns = list(dict.fromkeys(name for row in all_rows for name in row))
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns)
        writer.writeheader()
        for row in all_rows:
            writer.writerow({name: json.dumps(x) if isinstance(x, list) else x for name, x in row.items()})
    return len(all_rows)


def _parquet(rows: Rows, path: Path) -> int:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise ValueError("parquet files need pyarrow: pip install 'burnish[data]'; or export --to jsonl") from None
    count = 0
    pages = _pages(rows)
    first = next(pages, [])
    if path.stem != "traces":  # columns may differ between steps, so all rows are read first
        first = [*first, *(row for page in pages for row in page)]
    columns = dict.fromkeys(name for row in first for name in row)
    table = pyarrow.Table.from_pylist([{name: row.get(name) for name in columns} for row in first])
    fields = [pyarrow.field(f.name, _typed(f, pyarrow)) for f in table.schema]
    schema = pyarrow.schema(fields)
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        for page in ([first], pages):
            for part in page:
                writer.write_table(pyarrow.Table.from_pylist(part, schema=schema))
                count += len(part)
    return count


def _typed(field: Any, pyarrow: Any) -> Any:
    """Column type: numbers that may be missing, or integers in some rows only, become doubles."""
    integer = field.name in ("id", "group_id", "step", "place", "length", "ids")
    if pyarrow.types.is_null(field.type):
        return pyarrow.string() if field.name == "dropped" else pyarrow.float64()
    if pyarrow.types.is_integer(field.type) and not integer:
        return pyarrow.float64()
    if field.name == "logp":
        return pyarrow.list_(pyarrow.float32())
    return field.type


def _pages(rows: Rows) -> Iterator[list[Mapping[str, object]]]:
    page: list[Mapping[str, object]] = []
    for row in rows:
        page.append(row)
        if len(page) == BATCH:
            yield page
            page = []
    if page:
        yield page


WRITERS: dict[str, Callable[[Rows, Path], int]] = {"parquet": _parquet, "jsonl": _jsonl, "csv": _csv}
