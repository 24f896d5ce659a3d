"""Stores of format 1, which counted steps from 0, are read from 1, and rewritten when a run resumes in them."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from burnish.core.loop import Report
from burnish.core.sample_ledger import UnitRow
from burnish.core.types import Clock
from burnish.store.control import order
from burnish.store.reader import open_store
from burnish.store.recorder import RunRecorder, cut
from burnish.store.schema import FILE, STEPS, connect


@pytest.fixture
def run(small_model: Path, tmp_path: Path) -> Path:
    """Three steps, each with a metric, a time and a unit of work, and an event of the second."""
    written = RunRecorder(tmp_path, AutoTokenizer.from_pretrained(str(small_model)), traces=0)
    for step in range(3):
        metrics, units = {"step": step + 1, "reward": step / 2}, [UnitRow(step, step, 0, 0, 4, step, 1, 1, 1, 0)]
        written.step(Report(Clock(step, 3), metrics, {"learn": 0.5, "step": 1.0}, units=units), {})
    written.event("saved", "a checkpoint", step=1)
    written.close()
    return tmp_path


def older(folder: Path) -> Path:
    """The same store as a burnish of format 1 wrote it."""
    db = sqlite3.connect(folder / FILE)
    for table, columns in STEPS.items():
        for column in columns:
            db.execute(f"UPDATE {table} SET {column} = -{column}")
            db.execute(f"UPDATE {table} SET {column} = -{column} - 1")
    db.execute("PRAGMA user_version = 1")
    db.commit()
    db.close()
    return folder


def read(folder: Path) -> list[Any]:
    with open_store(folder) as store:
        units = store.sql("SELECT step, drawn, version FROM units ORDER BY drawn")
        later = store.metrics(after=1, upto=2)
        return [store.metrics(), store.timings(), [event["step"] for event in store.events()], units, later]


def raw(folder: Path) -> list[int]:
    db = sqlite3.connect(folder / FILE)
    steps = [row[0] for row in db.execute("SELECT step FROM metrics ORDER BY rowid")]
    db.close()
    return steps


def test_both_formats_read_the_same_and_count_from_one(run: Path) -> None:
    now = read(run)
    assert [row["step"] for row in now[0]] == [1, 2, 3] and now[2] == [2] and raw(run) == [1, 2, 3]
    assert [(unit["step"], unit["drawn"], unit["version"]) for unit in now[3]] == [(1, 1, 0), (2, 2, 1), (3, 3, 2)]
    assert [row["reward"] for row in now[4]] == [0.5], "after step 1 and up to step 2 there is one step"
    assert read(older(run)) == now and raw(run) == [0, 1, 2], "reading changes nothing"


def test_a_run_that_resumes_rewrites_an_older_store(run: Path) -> None:
    before = read(run)
    older(run)
    order(run, "stop")  # sent to a run that an older process may be writing: it keeps its format
    assert raw(run) == [0, 1, 2]
    cut(run, 2)  # resumed after two steps
    assert raw(run) == [1, 2] and read(run)[0] == before[0][:2]
    connect(run / FILE).close()
    assert raw(run) == [1, 2], "it is rewritten once"


def test_a_format_of_the_future_is_refused(run: Path) -> None:
    db = sqlite3.connect(run / FILE)
    db.execute("PRAGMA user_version = 3")
    db.close()
    for opened in (open_store, lambda folder: connect(folder / FILE)):
        with pytest.raises(ValueError, match="has the store format 3, and this burnish reads formats up to 2"):
            opened(run)
