"""The rows of a benchmark: from a folder with files in its own format, or from the hub."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from burnish.bench.kinds import Bench, Row
from burnish.tasks.data.files import read_file, read_folder, read_rows, reader_of
from burnish.util.paths import expanded

ASKED = ("test", "validation", "val", "dev", "train")  # the split that is measured: the first of these that there is
EXAMPLES = ("dev", "train", "validation", "prompt")  # the split that examples are taken from


@dataclass(frozen=True)
class Rows:
    """The rows that are asked, and those that examples are taken from."""

    asked: list[Row]
    examples: list[Row]


def rows_of(bench: Bench, folder: str | None) -> Rows:
    """The rows of a benchmark. folder: where its files are; None: they come from the hub.

    In a folder they are NAME/ (as the hub has it), or files whose names begin with NAME: gsm8k.jsonl, or
    gsm8k_test.jsonl and gsm8k_train.jsonl, mmlu_dev.csv, bbh_navigate.json.
    """
    splits = _of_hub(bench) if folder is None else _of_folder(bench, expanded(folder))
    asked = next((name for name in ASKED if splits.get(name)), None)
    if asked is None:
        raise ValueError(f"the data of {bench.name} hold no rows; fetch them again")
    others = next((name for name in EXAMPLES if name != asked and splits.get(name)), None)
    return Rows(splits[asked], splits[others] if others else [])


def _of_hub(bench: Bench) -> dict[str, list[Row]]:
    return {split: list(map(_mapping, rows)) for split, rows in read_rows(bench.hub).items()}


def _of_folder(bench: Bench, folder: Path) -> dict[str, list[Row]]:
    if not folder.is_dir():
        raise ValueError(f"--bench-data {folder} is not a folder; give the one that holds {bench.name}.jsonl")
    own = folder / bench.name
    if own.is_dir():
        return {split: list(map(_mapping, rows)) for split, rows in read_folder(own).items()}
    files = [file for file in sorted(folder.iterdir()) if _is_of(bench, file) and reader_of(file.name)]
    if not files:
        raise ValueError(
            f"{folder} holds no data of {bench.name}; put {bench.name}.jsonl there (or .json, .csv, .parquet; columns "
            f"as {bench.hub.partition(':')[0]} on the hub has them), or leave out --bench-data"
        )
    splits: dict[str, list[Row]] = {}
    for file in files:
        part = file.name.partition(".")[0][len(bench.name) :].strip("_-")
        split = next((name for name in (*ASKED, *EXAMPLES) if name in part.replace("-", "_").split("_")), "test")
        group = "_".join(word for word in part.replace("-", "_").split("_") if word and word != split)
        splits.setdefault(split, []).extend(_expanded(file, group))
    return splits


def _is_of(bench: Bench, file: Path) -> bool:
    """Whether a file's name begins with that of the benchmark, in small letters and without hyphens."""
    stem = file.name.partition(".")[0].lower().replace("-", "_")
    return (
        file.is_file()
        and (stem == bench.name or stem.startswith(f"{bench.name}_"))
        and not any(stem.startswith(other) for other in LONGER.get(bench.name, ()))
    )


LONGER = {"truthfulqa": ("truthfulqa_mc1",)}  # benchmarks whose names begin with another's


def _expanded(file: Path, group: str) -> list[Row]:
    """The rows of a file. BBH's files have them under "examples"; the part of a benchmark may be in the file's name."""
    rows: list[Row] = []
    for row in map(_mapping, read_file(file)):
        inner = row.get("examples")
        listed = inner if isinstance(inner, Sequence) and not isinstance(inner, str) else [row]
        rows += [_mapping(one) for one in listed]
    if group:
        rows = [{"task": group, "subject": group, **row} for row in rows]
    return rows


def _mapping(row: object) -> Row:
    if not isinstance(row, Mapping):
        raise ValueError(f"a row of a benchmark is {str(row)[:60]!r}; it must be an object with columns")
    return row
