"""Unreadable runs: each is listed with the error, and the other runs are listed as usual."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from runs import go

import burnish
from burnish.checkpoint.checkpoint import damage, newest
from burnish.cli import main
from burnish.report.api import Api
from burnish.report.catalogue import summaries
from burnish.run.folder import Folder


@pytest.fixture(scope="module")
def whole(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of two steps."""
    out = tmp_path_factory.mktemp("whole") / "run"
    go("sft", small_model, out, eval_tasks=2)
    return out


def sql(run: Path, *statements: str) -> None:
    db = sqlite3.connect(run / "store.sqlite")
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


def instead(run: Path, name: str, make: Callable[[Path], object]) -> None:
    (run / name).unlink(missing_ok=True)
    make(run / name)


def spoil_middle(run: Path) -> None:
    """Corrupt every page but the first: the tables exist in the schema only."""
    content = (run / "store.sqlite").read_bytes()
    (run / "store.sqlite").write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


ODD: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (lambda r: (r / "store.sqlite").write_bytes(b""), "is empty"),
    "text": (lambda r: (r / "store.sqlite").write_text("hello, this is no database\n" * 99), "file is not a database"),
    "cut short": (lambda r: os.truncate(r / "store.sqlite", 5000), "malformed"),
    "garbage pages": (spoil_middle, "malformed"),
    "a directory": (lambda r: instead(r, "store.sqlite", Path.mkdir), "is a directory, not a file"),
    "a FIFO": (lambda r: instead(r, "store.sqlite", os.mkfifo), "is a FIFO, not a file"),
    "a broken link": (lambda r: instead(r, "store.sqlite", lambda p: p.symlink_to("nowhere")), "has no store.sqlite"),
    "a link to itself": (lambda r: instead(r, "store.sqlite", lambda p: p.symlink_to(p)), "symbolic links"),
    "no store": (lambda r: (r / "store.sqlite").unlink(), "has no store.sqlite"),
    "another format": (lambda r: sql(r, "PRAGMA user_version = 77"), "store format 77"),
    "a missing table": (lambda r: sql(r, "DROP TABLE metrics"), "has no table metrics"),
    "another table": (lambda r: sql(r, "DROP TABLE info", "CREATE TABLE info (a, b)"), "no such column"),
    "config is not JSON": (lambda r: sql(r, "UPDATE info SET value = '{' WHERE name = 'config'"), "Expecting property"),
    "config is a list": (lambda r: sql(r, "UPDATE info SET value = '[1]' WHERE name = 'config'"), "no configuration"),
    "config is deep": (
        lambda r: sql(r, f"UPDATE info SET value = '{'[' * 100_000}' WHERE name = 'config'"),
        "RecursionError",
    ),
    "steps is text": (
        lambda r: sql(r, """UPDATE info SET value = '{"steps": "x"}' WHERE name = 'config'"""),
        "invalid literal",
    ),
    "created is text": (
        lambda r: sql(r, """UPDATE info SET value = '"x"' WHERE name = 'created'"""),
        "could not convert",
    ),
    "bytes for a step": (lambda r: sql(r, "UPDATE metrics SET step = x'00ff'"), ""),
    "evaluation is not JSON": (lambda r: (r / "evaluation.json").write_text("{"), "is not JSON"),
    "evaluation is a number": (lambda r: (r / "evaluation.json").write_text("7"), "does not hold an object"),
    "evaluation is a FIFO": (lambda r: instead(r, "evaluation.json", os.mkfifo), "is a FIFO, not a regular file"),
    "evaluation is a directory": (lambda r: instead(r, "evaluation.json", Path.mkdir), "is a directory, not a regular"),
    "the log is a FIFO": (lambda r: instead(r, "store.sqlite-wal", os.mkfifo), "store.sqlite-wal is not a file"),
}


def copied(whole: Path, run: Path) -> Path:
    """A copy without SQLite's own files, which a reader of the original may have left."""
    shutil.copytree(whole, run, ignore=shutil.ignore_patterns("*-wal", "*-shm"))
    return run


@pytest.mark.parametrize("how", ODD)
def test_a_run_that_cannot_be_read_is_a_row_that_says_why(
    how: str, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    copied(whole, tmp_path / "good")
    spoil, why = ODD[how]
    spoil(copied(whole, tmp_path / "odd"))
    found = {run.name: run for run in summaries(tmp_path)}
    assert found.keys() == {"good", "odd"}
    assert found["good"].state == "finished" and found["odd"].state == "unreadable" and why in found["odd"].result
    assert "\n" not in found["odd"].result
    assert main(["runs", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "unreadable" in out and "good" in out and not err
    assert main(["runs", str(tmp_path), "--json"]) == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out)} == {"good", "odd"}
    listed = {run["name"]: run for run in Api(tmp_path).runs({})}
    assert (
        listed["good"]["state"] == "finished"
        and listed["odd"]["state"] == "unreadable"
        and why in listed["odd"]["result"]
    )
    json.dumps(list(map(str, listed.values())))
    for command in (["runs", "show"], ["report"], ["doctor"]):
        assert main([*command, str(tmp_path / "odd")]) in (0, 1, 2)  # an answer, not a traceback
    assert "Traceback" not in capsys.readouterr().err


def test_odd_names_are_listed_too(whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names with markup, escape sequences or invalid UTF-8; circular links; unreadable folders."""
    for name in ("[red]", "[/bold]", "a\x1b[31mb", "line\nbreak", os.fsdecode(b"\xff\xfe")):
        copied(whole, tmp_path / name)
    (tmp_path / "circle").symlink_to(tmp_path)
    (tmp_path / "itself").symlink_to("itself")
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "file").write_text("")
    sql(
        tmp_path / "[red]",
        r"""UPDATE info SET value = '{"method": "a\u0000[/b]\u001b[2J", "steps": 2}' WHERE name = 'config'""",
    )
    assert main(["runs", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert "[red]" in out and "[/bold]" in out and "\x1b" not in out and "\0" not in out and not err
    assert len([run for run in summaries(tmp_path) if "circle" not in run.name]) == 5
    json.dumps([row["name"] for row in Api(tmp_path).runs({})]).encode()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_store_without_permission_is_a_row(whole: Path, tmp_path: Path) -> None:
    copied(whole, tmp_path / "odd")
    (tmp_path / "odd" / "store.sqlite").chmod(0)
    (run,) = summaries(tmp_path)
    assert run.state == "unreadable" and "Permission denied" in run.result


def test_last_is_the_newest_run_that_can_be_read(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    copied(whole, tmp_path / "runs" / "good")
    (tmp_path / "runs" / "odd").mkdir()
    os.mkfifo(tmp_path / "runs" / "odd" / "store.sqlite")
    assert main(["runs", "show", "last"]) == 0
    assert "runs/good" in capsys.readouterr().out


# -------------------------------------------------------------- FIFOs and directories in the place of files of a run


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir], ids=["fifo", "directory"])
@pytest.mark.parametrize("name", ["store.sqlite", "config.yaml", "evaluation.json", "checkpoints", "run.lock"])
def test_resuming_says_what_is_in_the_way(name: str, make: Callable[[Path], None], whole: Path, tmp_path: Path) -> None:
    run = copied(whole, tmp_path / "run")
    place = run / name
    if name == "checkpoints":
        shutil.rmtree(place)
        if make is Path.mkdir:
            pytest.skip("a directory is what it should be")
    else:
        place.unlink(missing_ok=True)
    make(place)
    with pytest.raises(ValueError) as caught:
        burnish.resume(run, steps=3)
    assert "\n" not in str(caught.value) and (name in str(caught.value) or "run folder" in str(caught.value))
    place.rmdir() if place.is_dir() else place.unlink()


def test_a_fifo_in_the_place_of_a_whole_checkpoint_is_passed_over(whole: Path, tmp_path: Path) -> None:
    run = copied(whole, tmp_path / "run")
    shutil.rmtree(run / "checkpoints" / "step-000002")
    os.mkfifo(run / "checkpoints" / "step-000002")
    path, passed = newest(run, Folder(run).identity())
    assert path is not None and path.name == "step-000001" and passed == ["step-000002 (it is not a directory)"]
    burnish.resume(run)
    assert not damage(run / "checkpoints" / "step-000002")
    assert sorted(p.name for p in (run / "checkpoints").iterdir()) == ["step-000001", "step-000002"]


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json", "other"])
@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir], ids=["fifo", "directory"])
def test_a_model_directory_with_a_fifo_or_a_directory(
    name: str, make: Callable[[Path], None], small_model: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model"
    shutil.copytree(small_model, model)
    (model / name).unlink(missing_ok=True)
    make(model / name)
    if name == "other" and make is Path.mkdir:
        return  # an additional directory is ignored
    with pytest.raises(ValueError) as caught:
        go("sft", model, tmp_path / "run")
    assert "\n" not in str(caught.value) and not (tmp_path / "run").exists()
