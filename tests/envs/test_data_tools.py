"""Tools over a database and over a folder: what they answer, their limits, and BM25 by hand."""

from __future__ import annotations

import json
import math
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from burnish.envs import sql_tools
from burnish.envs.folder_tools import Index, Passage
from burnish.envs.named_tools import read_tools
from burnish.envs.tools import ToolEnv


def said(env: ToolEnv, name: str, **arguments: Any) -> str:
    [message] = env.step(f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>").observation  # type: ignore[misc]
    return str(message["content"])


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    file = tmp_path / "shop.sqlite"
    with sqlite3.connect(file) as base:
        base.execute("CREATE TABLE sales (item TEXT, price REAL)")
        base.executemany("INSERT INTO sales VALUES (?, ?)", [("pen", 2.5), ("ink", 7.0), (None, 1.0)])
    return file


def test_a_database_is_asked_and_never_changed(shop: Path) -> None:
    env = ToolEnv(read_tools(f"sql:{shop}"))
    assert said(env, "tables") == "CREATE TABLE sales (item TEXT, price REAL)"
    assert said(env, "query", sql="SELECT item, price FROM sales ORDER BY price") == (
        "item | price\nNULL | 1.0\npen | 2.5\nink | 7.0"
    )
    before = shop.read_bytes()
    for sql in (
        "DELETE FROM sales", "DROP TABLE sales", "INSERT INTO sales VALUES ('x', 1)", "PRAGMA writable_schema = 1",
        "ATTACH DATABASE '/tmp/x.sqlite' AS x", "SELECT load_extension('x')", "SELECT 1; DELETE FROM sales",
        "VACUUM INTO '/tmp/y.sqlite'", "SELEC", "SELECT * FROM nothing", "",
    ):  # fmt: skip
        assert said(env, "query", sql=sql).startswith("error: ") or sql == "", sql
    assert shop.read_bytes() == before and [path.name for path in shop.parent.iterdir()] == ["shop.sqlite"]


def test_a_query_that_does_not_end_and_one_with_many_rows_are_cut(shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = ToolEnv(read_tools(f"sql:{shop}"))
    numbers = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n {}) SELECT {} FROM n"
    many = said(env, "query", sql=numbers.format("LIMIT 1000", "x")).splitlines()
    assert many[1] == "1" and len(many) == 52 and many[-1] == "[more rows]"
    monkeypatch.setattr(sql_tools, "SECONDS", 0.05)
    assert said(env, "query", sql=numbers.format("", "count(*)")) == "error: OperationalError: interrupted"


@pytest.mark.parametrize("place", ["nothing.sqlite", "notes.txt", "empty.sqlite"])
def test_what_is_no_database_is_refused_in_a_sentence(place: str, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("no database, but long enough to be read as one " * 50)
    sqlite3.connect(tmp_path / "empty.sqlite").close()
    with pytest.raises(ValueError, match="--tools sql:.*(give a SQLite file|has no tables)"):
        read_tools(f"sql:{tmp_path / place}")


def test_an_interpreter_has_a_state_for_each_episode_and_limits() -> None:
    one, other = ToolEnv(read_tools("python:5")), ToolEnv(read_tools("python:5"))
    one.reset()
    other.reset()
    assert said(one, "python", code="x = 6\nprint('set')") == "set\n"
    assert said(one, "python", code="def f(y):\n    return x * y\n\nf(7)") == "42\n"
    assert "NameError" in said(other, "python", code="x")
    assert said(one, "python", code="x = 1 / 0").startswith("error: ZeroDivisionError")
    assert said(one, "python", code="x") == "6\n"  # a call that raised has left nothing
    assert said(one, "python", code="y = 3") == "(nothing was printed)"
    for code in ("open('/etc/passwd').read()", "import socket; socket.create_connection(('127.0.0.1', 9))", "x ="):
        assert "error: " in said(other, "python", code=code), code
    short = ToolEnv(read_tools("python:0.5"))
    short.reset()
    assert said(short, "python", code="while True: pass") == "error: not finished after 0.5 s"
    with pytest.raises(ValueError, match="give the seconds that a call may take"):
        read_tools("python:soon")


def test_bm25_by_hand() -> None:
    """Three passages of 2, 2 and 4 terms: mean 8/3. "ink" is in two of them, "pen" in one.

    idf(ink) = ln(1 + 1.5/2.5), idf(pen) = ln(1 + 2.5/1.5). In the first passage both stand once, and
    1.2 (1 - 0.75 + 0.75 * 2 / (8/3)) = 0.975: each counts 2.2 / 1.975. In the third "ink" stands twice, and
    1.2 (0.25 + 0.75 * 4 / (8/3)) = 1.65: 4.4 / 3.65.
    """
    index = Index([Passage("a", 1, "Pen, ink"), Passage("b", 1, "red book"), Passage("c", 1, "ink ink blue paper")])
    ink, pen = math.log(1.6), math.log(1 + 2.5 / 1.5)
    assert index.score(0, ["pen", "ink"]) == pytest.approx((pen + ink) * 2.2 / 1.975)
    assert index.score(2, ["pen", "ink"]) == pytest.approx(ink * 4.4 / 3.65)
    assert index.score(1, ["pen", "ink"]) == 0.0
    assert [one.file for one in index.search("INK pen?", 5)] == ["a", "c"]
    assert [one.file for one in index.search("ink", 1)] == ["c"]


def test_a_folder_is_searched_and_read_and_nothing_outside_of_it(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    (folder / "more").mkdir(parents=True)
    (folder / "a.md").write_text("# Pens\nThe red pen is in box 7.\n")
    (folder / "more" / "b.txt").write_text("\n".join(f"line {i} of the ledger" for i in range(1, 200)))
    (folder / "picture.png").write_bytes(b"\x89PNG box")
    (tmp_path / "secret.txt").write_text("box 99")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    env = ToolEnv(read_tools(f"folder:{folder}"))
    found = said(env, "search", query="which box has the red pen")
    assert found.startswith("[a.md:1] # Pens\nThe red pen is in box 7.")  # others that have "the" come after it
    assert said(env, "search", query="99").startswith("[more/b.txt:") and "99" not in said(env, "search", query="box")
    assert said(env, "read", file="more/b.txt", line="150").startswith("line 150 of the ledger\nline 151")
    for name in ("../secret.txt", "link.txt", "picture.png", "/etc/passwd"):
        assert said(env, "read", file=name).startswith("error: there is no file")
    assert said(env, "search", query="zebra") == "nothing found"
    with pytest.raises(ValueError, match="has no text files"):
        read_tools(f"folder:{tmp_path / 'none'}")
