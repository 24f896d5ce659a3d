"""`--tools sql:FILE`: questions to a SQLite database. The file is opened read-only, by each call for itself.

Nothing that a model writes changes the file, opens another one or runs long: SQLite refuses what is no reading
(its authorizer), and a query ends after SECONDS.
"""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path

from burnish.envs.tools import Tool
from burnish.util.paths import expanded

SECONDS, ROWS, CELL = 5.0, 50, 200  # of one query; of its answer; characters of a value
_MAY = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE})
_STEPS = 10_000  # of SQLite's virtual machine between looks at the clock


def sql_tools(place: str) -> list[Tool]:
    """The tools of a database: its tables, and queries."""
    file = expanded(place)
    try:
        names = _asked(file, "SELECT name FROM sqlite_master WHERE type = 'table'")[1]
    except sqlite3.Error as error:
        raise ValueError(f"--tools sql:{place}: the database cannot be read ({error}); give a SQLite file") from None
    if not names:
        raise ValueError(f"--tools sql:{place}: the database has no tables")

    def tables() -> str:
        """List the tables of the database with their columns."""
        return "\n".join(str(row[0]) for row in _asked(file, "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")[1])

    def query(sql: str) -> str:
        """Run one SELECT on the database.

        Args:
            sql: One statement of SQLite that only reads.
        """
        return _shown(*_asked(file, sql))

    return [Tool.of(tables), Tool.of(query)]


def _asked(file: Path, sql: str) -> tuple[list[str], list[tuple[object, ...]]]:
    """Columns and rows of a query of a file; raises sqlite3.Error."""
    with closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=SECONDS)) as base:
        return _read(base, sql)


def answered(base: sqlite3.Connection, sql: str) -> str:
    """What a query of a database gives, as a model reads it; raises sqlite3.Error for what only reads nothing."""
    return _shown(*_read(base, sql))


def _read(base: sqlite3.Connection, sql: str) -> tuple[list[str], list[tuple[object, ...]]]:
    """Columns and rows of a query, one row more than are shown at most."""
    end = time.monotonic() + SECONDS
    base.text_factory = lambda raw: raw.decode("utf-8", "replace")
    base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1 << 20)  # a value, and a query
    base.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _MAY else sqlite3.SQLITE_DENY)
    base.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
    cursor = base.execute(sql)
    rows = cursor.fetchmany(ROWS + 1)
    return [str(column[0]) for column in cursor.description or ()], rows


def _shown(columns: list[str], rows: list[tuple[object, ...]]) -> str:
    lines = [" | ".join(columns), *(" | ".join(_cell(value) for value in row) for row in rows[:ROWS])]
    return "\n".join([*lines, *(["[more rows]"] if len(rows) > ROWS else [])])


def _cell(value: object) -> str:
    text = "NULL" if value is None else value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= CELL else f"{text[:CELL]}..."
