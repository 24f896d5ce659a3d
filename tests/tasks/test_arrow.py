"""Rows that stay on disk: offsets, batches, caches, and a memory that does not grow with the file."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from guards import guards

from burnish.core import randomness
from burnish.tasks.data import Dataset, arrow, cache, lines
from burnish.tasks.data.files import read_file
from burnish.tasks.mixture import BLOCK, Ingredient, Mixture
from burnish.tasks.table import source

pytestmark = guards("tasks/data")

ROWS = [{"prompt": f"Wie viel ist {n} + 1?", "completion": "ä" * (n % 50) + str(n + 1)} for n in range(3000)]


def written(path: Path, rows: list[dict[str, Any]] = ROWS) -> Path:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    return path


@pytest.mark.parametrize("chunk", [7, 1000, 1 << 24])
def test_lines_are_found_by_their_offsets(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "CHUNK", chunk)
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\r\n\n  \n{"a": 2}\n\r\n{"a": 3}')
    found = read_file(tmp_path / "a.jsonl")
    assert [row["a"] for row in found] == [found[i]["a"] for i in range(len(found))] == [1, 2, 3]
    assert [found.where(i).rpartition(", ")[2] for i in range(3)] == ["line 1", "line 4", "line 6"]


@pytest.mark.parametrize(("suffix", "opener"), [(".gz", gzip.open), (".bz2", bz2.open), (".xz", lzma.open)])
@pytest.mark.parametrize("memory", [10, 1 << 26])
def test_compressed_files_are_unpacked_once(
    suffix: str, opener: Any, memory: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "IN_MEMORY", memory)
    with opener(tmp_path / f"a.jsonl{suffix}", "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
    found = read_file(tmp_path / f"a.jsonl{suffix}")
    assert list(found) == ROWS
    assert found[2999] == ROWS[2999]
    with opener(tmp_path / f"b.csv{suffix}", "wt", encoding="utf-8") as out:
        out.write('prompt,completion\n"two\nlines",x\n')
    assert list(read_file(tmp_path / f"b.csv{suffix}")) == [{"prompt": "two\nlines", "completion": "x"}]


def test_a_large_parquet_file_is_copied_into_small_batches_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet", row_group_size=1100)
    plain = read_file(tmp_path / "a.parquet")
    assert list(plain) == ROWS
    monkeypatch.setattr(arrow, "IN_MEMORY", 10)
    found = read_file(tmp_path / "a.parquet")
    (copy,) = (tmp_path / "home" / "data").glob("*.arrow")
    made = copy.stat().st_ino
    assert list(found) == ROWS
    assert [found[i] for i in (0, 127, 128, 1099, 1100, 2999)] == [ROWS[i] for i in (0, 127, 128, 1099, 1100, 2999)]
    assert read_file(tmp_path / "a.parquet")[1500] == ROWS[1500]
    assert copy.stat().st_ino == made


def test_what_a_scan_found_is_kept_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache, "WORTH_SECONDS", 0.0)
    path = written(tmp_path / "a.jsonl")
    first = Dataset(path)
    expected = [first.task("train", i) for i in range(20)]
    assert list((tmp_path / "home" / "data").glob("*.safetensors"))
    monkeypatch.setattr("burnish.tasks.data.scan._scanned", lambda *_: pytest.fail("scanned again"))
    again = Dataset(path)
    assert [again.task("train", i) for i in range(20)] == expected
    assert again.gives == first.gives == {"demo"}
    written(path, ROWS[:40])
    with pytest.raises(pytest.fail.Exception, match="scanned again"):
        Dataset(path).size("train")


PROBE = """
import resource, sys
from burnish.tasks.data import Dataset

def used():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

Dataset(sys.argv[1]).size("train")  # imports and pools
before = used()
large = Dataset(sys.argv[2])
size = large.size("train")
for i in range(0, size, size // 500):
    large.task("train", i)
print(used() - before, size)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """60 MB of rows: 16 bytes a row stay, and buffers of a few MB."""
    small = written(tmp_path / "small.jsonl", ROWS[:10])
    text = "word " * 600
    large = tmp_path / "large.jsonl"
    with large.open("w") as out:
        out.writelines(json.dumps({"prompt": f"{n}", "completion": text}) + "\n" for n in range(20_000))
    assert large.stat().st_size > 60e6
    done = subprocess.run([sys.executable, "-c", PROBE, small, large], capture_output=True, text=True, timeout=120)
    grown, size = map(int, done.stdout.split())
    assert size > 17_000
    assert grown < 30e6, f"{grown / 1e6:.0f} MB"


# ------------------------------------------------------------------------------------------------- orders and shares


@pytest.mark.parametrize("n", [1, 2, 3, 5, 16, 17, 100, 1000])
def test_an_order_is_a_permutation_for_every_size(n: int) -> None:
    order = [randomness.placed(i, n, 7, "prompts", 0) for i in range(n)]
    assert sorted(order) == list(range(n))
    assert order == [randomness.placed(i, n, 7, "prompts", 0) for i in range(n)]
    if n > 16:
        assert order != [randomness.placed(i, n, 7, "prompts", 1) for i in range(n)]
        assert order != [randomness.placed(i, n, 8, "prompts", 0) for i in range(n)]


def test_orders_are_uniform() -> None:
    """Of 4,000 orders of 10 rows each row stands at each place 400 times, within five standard deviations."""
    places = np.zeros((10, 10))
    for seed in range(4000):
        for i in range(10):
            places[i, randomness.placed(i, 10, seed, "prompts", 0)] += 1
    assert np.abs(places - 400).max() < 5 * np.sqrt(400 * 0.9)
    neighbours = Counter(
        (randomness.placed(0, 5, seed, "x"), randomness.placed(1, 5, seed, "x")) for seed in range(4000)
    )
    assert len(neighbours) == 20
    assert max(abs(count - 200) for count in neighbours.values()) < 5 * np.sqrt(200)


def test_mixtures_with_an_endless_source_have_exact_shares_in_every_block(tmp_path: Path) -> None:
    table = Dataset(written(tmp_path / "a.jsonl"), heldout=0)
    mixture = Mixture("m", [Ingredient(source("sort:1"), "sort", 0.25), Ingredient(table, "rows", 0.75)])
    assert mixture.size("train") is None
    for block in (0, 3):
        names = [mixture.task("train", block * BLOCK + i).given["dataset"] for i in range(BLOCK)]
        assert Counter(names) == {"sort": 250, "rows": 750}
    keys = [mixture.task("train", i).key for i in range(4 * BLOCK)]
    assert len({key for key in keys if key.startswith("Wie")}) == 3000
    assert mixture.summary == "25% sort, 75% rows"


def test_what_one_dataset_holds_out_is_not_trained_on_through_another(tmp_path: Path) -> None:
    one, other = Dataset(ROWS[:300]), Dataset({"train": ROWS[:300], "test": ROWS[300:310]})
    held = {one.task("heldout", i).key for i in range(one.size("heldout"))}
    mixture = Mixture("m", [Ingredient(one, "one"), Ingredient(other, "other")])
    size = mixture.size("train")
    assert size is not None
    assert not held & {mixture.task("train", i).key for i in range(size)}
    assert size == 2 * one.size("train")
    first = [mixture.task("heldout", i).given["dataset"] for i in range(20)]
    assert set(first) == {"one", "other"}


def _parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Parquet file that is too large for memory, and a home of its own."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(arrow, "IN_MEMORY", 10)
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "a.parquet", row_group_size=1100)
    return tmp_path / "a.parquet"


def test_a_damaged_copy_of_a_parquet_file_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _parquet(tmp_path, monkeypatch)
    read_file(path)
    (copy,) = (tmp_path / "home" / "data").glob("*.arrow")
    copy.write_bytes(copy.read_bytes()[:1000])
    assert list(read_file(path)) == ROWS
    copy.write_bytes(b"")
    assert list(read_file(path)) == ROWS


def with_old_times(path: Path, write: Callable[[], object]) -> None:
    """Write a file of the same size again, with the times that it had: what `cp -p` does."""
    before = path.stat()
    write()
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_rows_of_a_file_that_keeps_its_size_and_time_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy of a Parquet file, and what a scan has found, belong to the content: 'Wie viel ist' becomes 'Wer'."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(cache, "WORTH_SECONDS", 0.0)
    path = _parquet(tmp_path, monkeypatch)
    others = [{**row, "prompt": row["prompt"].replace("Wie viel ist", "Was nur wird")} for row in ROWS]
    plain = {"compression": "none", "use_dictionary": False}
    pq.write_table(pa.Table.from_pylist(ROWS), path, **plain)
    assert list(read_file(path)) == ROWS
    with_old_times(path, lambda: pq.write_table(pa.Table.from_pylist(others), path, **plain))
    assert list(read_file(path)) == others
    text = written(tmp_path / "a.jsonl")
    assert Dataset(text).size("train")
    with_old_times(text, lambda: written(text, others))
    second, fresh = Dataset(text), Dataset([{**row} for row in others])
    found = [{second.task(split, i).key for i in range(second.size(split))} for split in ("train", "heldout")]
    monkeypatch.setenv("BURNISH_CACHE", "0")
    assert found == [{fresh.task(s, i).key for i in range(fresh.size(s))} for s in ("train", "heldout")]


@pytest.mark.parametrize("where", [0, 50, 0.5])
def test_a_copy_that_is_altered_after_it_was_opened_is_refused_and_removed(
    where: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _parquet(tmp_path, monkeypatch)
    rows = read_file(path)
    (copy,) = (tmp_path / "home" / "data").glob("*.arrow")
    content = bytearray(copy.read_bytes())
    content[int(where * len(content)) if 0 < where < 1 else int(where)] ^= 1
    with copy.open("r+b") as opened:
        opened.write(content)
    with pytest.raises(ValueError, match=r"a copy of rows in the cache, was altered while it was read and has been"):
        list(rows)
    assert list(read_file(path)) == ROWS and [path.name for path in copy.parent.glob("*.arrow")] == [copy.name]


def test_a_copy_of_other_rows_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = _parquet(tmp_path, monkeypatch)
    pq.write_table(pa.Table.from_pylist(ROWS[:200]), tmp_path / "b.parquet")
    read_file(path)
    (copy,) = (tmp_path / "home" / "data").glob("*.arrow")
    read_file(tmp_path / "b.parquet")
    (other,) = set((tmp_path / "home" / "data").glob("*.arrow")) - {copy}
    other.replace(copy)
    assert list(read_file(path)) == ROWS


def test_columns_of_categories_and_lists_come_back_from_the_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = _parquet(tmp_path, monkeypatch)
    kinds = pa.array([f"kind {n % 3}" for n in range(300)]).dictionary_encode()
    table = pa.table({"kind": kinds, "more": [[n, None] for n in range(300)], "none": [None] * 300})
    pq.write_table(table, path, row_group_size=70)
    assert list(read_file(path)) == table.to_pylist()


def test_the_hash_of_a_file_is_remembered_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURNISH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(cache, "WORTH_HASHING", 0.0)
    path = tmp_path / "a"
    path.write_bytes(b"one")
    hashed = cache.content(path)
    assert not list((tmp_path / "home" / "data").iterdir())  # it may change again within the same tick of the clock
    monkeypatch.setattr(cache, "SETTLED", 0.0)
    assert cache.content(path) == hashed == hashlib.sha256(b"one").hexdigest()
    assert len(list((tmp_path / "home" / "data").iterdir())) == 1
    with_old_times(path, lambda: path.write_bytes(b"two"))
    assert cache.content(path) == hashlib.sha256(b"two").hexdigest()
    (tmp_path / "new").write_bytes(b"six")
    with_old_times(path, lambda: (tmp_path / "new").replace(path))
    assert cache.content(path) == hashlib.sha256(b"six").hexdigest()
    monkeypatch.setattr(hashlib, "file_digest", lambda *_: pytest.fail("hashed again"))
    assert cache.content(path) == hashlib.sha256(b"six").hexdigest()


def test_a_cache_that_cannot_be_written_leaves_a_copy_for_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cached = _parquet(tmp_path, monkeypatch), tmp_path / "home" / "data"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    write = arrow.write_batches

    def full(file: Path, *given: Any) -> None:
        write(file, *given)
        if file.is_relative_to(cached):
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(arrow, "write_batches", full)
    assert list(read_file(path)) == ROWS
    assert list(cached.iterdir()) == []
    assert len(list(tmp_path.glob("burnish-data-*/*.arrow"))) == 1


def test_copies_that_nobody_reads_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cached = _parquet(tmp_path, monkeypatch), tmp_path / "home" / "data"
    cached.mkdir(parents=True, mode=0o700)
    for name, days in (("old.arrow", 31), ("old.1.partial", 31), ("recent.arrow", 29)):
        (cached / name).touch()
        os.utime(cached / name, (time.time() - days * 86400,) * 2)
    read_file(path)
    (own,) = {file.name for file in cached.iterdir()} - {"recent.arrow"}
    os.utime(cached / own, (0, time.time() - 20 * 86400))
    read_file(path)
    assert time.time() - (cached / own).stat().st_mtime < 86400  # it was read


def test_no_room_to_unpack_a_file_is_told_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gzip.open(tmp_path / "a.jsonl.gz", "wt", encoding="utf-8") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)

    def full(*given: Any, **named: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(lines, "_temporary", full)
    with pytest.raises(
        ValueError, match=r"a\.jsonl\.gz: its rows are copied into .*, where no space is left; free some"
    ):
        read_file(tmp_path / "a.jsonl.gz")
