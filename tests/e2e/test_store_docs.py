"""What docs/store.md says can be asked of a run store is asked here, word for word."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from runs import COIN, function, go

from burnish.store.reader import open_store
from burnish.store.schema import FILE, TABLES

DOCS = (Path(__file__).parents[2] / "docs" / "store.md").read_text()
QUESTIONS = [one.strip() for one in re.findall(r"```sql\n(.*?)```", DOCS, re.S)[0].split("\n\n")]


@pytest.fixture(scope="module")
def runs(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs under the names of the page; one of them drops groups."""
    place = tmp_path_factory.mktemp("docs")
    reward = function(place / "r.py", COIN, "coin")
    for name in ("first", "second"):
        go("dapo", small_model, place / "runs" / name, task="add", reward=reward, n=2, prompts=6, steps=4, refills=0)
    return place


@pytest.mark.parametrize("question", QUESTIONS, ids=[one.splitlines()[0].strip("- ") for one in QUESTIONS])
def test_the_questions_of_the_page_are_answered(question: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    with open_store("runs/first") as store:
        task = store.groups(limit=1)[0]["task"]
    db = sqlite3.connect(Path("runs/first") / FILE)
    found: list[Any] = []
    for statement in re.sub("^--.*$", "", question, flags=re.M).split(";"):
        if statement.strip():
            found = db.execute(statement.replace("'add 84+40'", f"'{task}'")).fetchall()
    db.close()
    assert found and all(value is not None for value in found[0])


def test_the_python_of_the_page_runs(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    lines = re.findall(r"```python\n(.*?)```", DOCS, re.S)[0].splitlines()
    calls = [line.split("  #")[0].strip() for line in lines if line.startswith("store.")]
    assert len(calls) >= 8
    with open_store("runs/first") as store:
        for name in {re.match(r"store\.(\w+)", call)[1] for call in calls}:  # type: ignore[index]
            assert callable(getattr(store, name)), name
        assert store.metrics()[-1]["reward"] >= 0
        assert all(row["reward"] >= 0.5 for row in store.traces(step=3, order="best", least=0.5))
        assert store.traces(search="carry the one", correct=False) == []
        assert store.trace(3)["tokens"]["streams"]["adv"]
        assert store.sql("SELECT dropped, count(*) AS n FROM traces GROUP BY dropped")


def test_every_table_is_described_with_all_its_columns() -> None:
    """A table or a column that nobody described is missing from the page."""
    described = dict(re.findall(r"^\| `(\w+)` \| [^|]* \| (.*) \|$", DOCS, re.M))
    db = sqlite3.connect(":memory:")
    db.executescript(TABLES)
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        for _, column, *_ in db.execute(f"PRAGMA table_info({table})"):
            assert f"`{column}`" in described[table], f"{table}.{column}"
