"""A store that two processes wrote to: `burnish doctor` finds the duplicate steps, and --heal removes them."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from conftest import recorded
from runs import COIN, function, go

from burnish.checkpoint.diff import differences
from burnish.cli import main
from burnish.run.lock import RunLock
from burnish.store.duplicates import find_duplicates, heal
from burnish.store.reader import open_store

KEYS = {"metrics": "step, name", "timings": "step, room", "memory": "step"}


@pytest.fixture(scope="module")
def finished(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four steps of GRPO, with traces."""
    place = tmp_path_factory.mktemp("doubled")
    go("grpo", small_model, place / "run", steps=4, reward=function(place / "r.py", COIN, "coin"))
    return place / "run"


def write_again(run: Path, steps: tuple[int, ...]) -> None:
    """Write whole steps again, in this order and with new ids, as a second process of the same run would."""
    db = sqlite3.connect(run / "store.sqlite")
    for step in steps:
        for table, key in KEYS.items():
            once = f"SELECT min(rowid) FROM {table} GROUP BY {key}"
            db.execute(f"INSERT INTO {table} SELECT * FROM {table} WHERE step = ? AND rowid IN ({once})", (step,))
        first = db.execute("SELECT min(id), max(id) FROM groups WHERE step = ?", (step,)).fetchone()
        groups = db.execute("SELECT * FROM groups WHERE step = ? ORDER BY id", (step,)).fetchall()
        groups = groups[: len(groups) if first[1] - first[0] + 1 == len(groups) else len(groups) // 2]
        for group in groups:
            new = db.execute("SELECT max(id) + 1 FROM groups").fetchone()[0]
            db.execute(f"INSERT INTO groups VALUES ({','.join('?' * len(group))})", (new, *group[1:]))
            for trace in db.execute("SELECT * FROM traces WHERE group_id = ? ORDER BY id", (group[0],)).fetchall():
                number = db.execute("SELECT max(id) + 1 FROM traces").fetchone()[0]
                marks = ",".join("?" * len(trace))
                db.execute(f"INSERT INTO traces VALUES ({marks})", (number, new, *trace[2:]))
                tokens = db.execute("SELECT * FROM tokens WHERE trace = ?", (trace[0],)).fetchone()
                db.execute("INSERT INTO tokens VALUES (?,?,?,?,?)", (number, *tokens[1:]))
    db.commit()
    db.close()


@pytest.mark.parametrize("steps", [(4,), (2, 3, 4), (3, 4)])
def test_duplicate_steps_are_found_and_healed(
    steps: tuple[int, ...], finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    write_again(run, steps)
    assert differences(finished, run)
    assert main(["doctor", str(run)]) == 1
    said = capsys.readouterr().out
    assert (
        "written more than once" in said and "--heal keeps each step once" in said and "finished and intact" not in said
    )
    assert main(["doctor", str(run), "--heal", "--same-as", str(finished)]) == 0
    assert "each is kept once" in capsys.readouterr().out
    assert recorded(run) == recorded(finished) and not differences(finished, run)
    with open_store(run) as store, open_store(finished) as other:
        word = other.traces(limit=1)[0]["prompt"].split()[0]
        assert [t["id"] for t in store.traces(search=word, limit=None)] == [
            t["id"] for t in other.traces(search=word, limit=None)
        ]
        assert store.sql("SELECT count(*) AS n FROM timings") == other.sql("SELECT count(*) AS n FROM timings")


def test_steps_out_of_order_are_sorted(finished: Path, tmp_path: Path) -> None:
    """One process wrote step 4 again before the other wrote steps 2 and 3; after --heal, ids follow the steps."""
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    write_again(run, (2, 3, 4))
    db = sqlite3.connect(run / "store.sqlite")
    first = {
        step: db.execute("SELECT min(id), count(*) / 2 FROM groups WHERE step = ?", (step,)).fetchone()
        for step in (2, 3)
    }
    for step, (low, many) in first.items():  # the cut took the first writer's steps 2 and 3, and left its step 4
        gone = f"SELECT id FROM groups WHERE step = {step} AND id < {low + many}"
        db.execute(f"DELETE FROM tokens WHERE trace IN (SELECT id FROM traces WHERE group_id IN ({gone}))")
        db.execute(f"DELETE FROM traces WHERE group_id IN ({gone})")
        db.execute(f"DELETE FROM groups WHERE id IN ({gone})")
        for table, key in KEYS.items():
            low_rows = f"SELECT min(rowid) FROM {table} WHERE step = {step} GROUP BY {key}"
            db.execute(f"DELETE FROM {table} WHERE rowid IN ({low_rows})")
    db.commit()
    db.close()
    assert differences(finished, run)
    heal(run)
    assert recorded(run) == recorded(finished) and not differences(finished, run)


def test_an_intact_store_is_not_changed(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    before = (run / "store.sqlite").read_bytes()
    assert main(["doctor", str(run), "--heal"]) == 0
    assert "there was nothing to heal" in capsys.readouterr().out
    assert (run / "store.sqlite").read_bytes() == before


def test_mixed_copies_are_refused(finished: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    write_again(run, (3,))
    db = sqlite3.connect(run / "store.sqlite")
    db.execute("DELETE FROM groups WHERE id = (SELECT max(id) FROM groups)")
    db.commit()
    db.close()
    with open_store(run) as store:
        assert find_duplicates(store).mixed == (3,)
    before = recorded(run)
    with pytest.raises(ValueError, match="cannot be healed: the traces of step 3 cannot be told apart"):
        heal(run)
    assert recorded(run) == before


def test_a_running_run_is_not_healed(finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    with RunLock.take(run):
        assert main(["doctor", str(run), "--heal"]) == 2
    assert "is being written by" in capsys.readouterr().err
