"""Schema of the run store: one SQLite database in WAL mode in each run folder, with one writer and any readers.

Tables that a rerun reproduces exactly (metrics, groups, traces, tokens) are separate from tables that it does not
(timings, events). docs/store.md describes every column, with queries.

Steps count from 1. Format 1 counted them from 0: its stores are read through views that add one, and are rewritten
when a run resumes in them.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path

from burnish.util.plainfile import KINDS

FILE = "store.sqlite"
VERSION = 2
FROM_ZERO = 1  # the format whose steps count from 0
BUSY_SECONDS = 10.0  # how long SQLite waits for a lock before it raises an error

TABLES = """
CREATE TABLE info (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE metrics (step INTEGER NOT NULL, name TEXT NOT NULL, value);
CREATE INDEX metrics_by_step ON metrics (step);
CREATE INDEX metrics_by_name ON metrics (name, step);
CREATE TABLE timings (step INTEGER NOT NULL, room TEXT NOT NULL, seconds REAL NOT NULL);
CREATE TABLE memory (step INTEGER NOT NULL, mb REAL NOT NULL);
CREATE TABLE groups (
  id INTEGER PRIMARY KEY, step INTEGER NOT NULL, phase TEXT NOT NULL, task TEXT NOT NULL, kind TEXT NOT NULL,
  prompt TEXT NOT NULL, given TEXT NOT NULL, pairs TEXT, lists TEXT
);
CREATE INDEX groups_by_step ON groups (step);
CREATE INDEX groups_by_task ON groups (task, step);
CREATE TABLE traces (
  id INTEGER PRIMARY KEY, group_id INTEGER NOT NULL, step INTEGER NOT NULL, place INTEGER NOT NULL,
  reward REAL, correct REAL, length INTEGER NOT NULL, advantage REAL, dropped TEXT,
  text TEXT NOT NULL, turns TEXT NOT NULL, scores TEXT NOT NULL, turn_scores TEXT NOT NULL, tags TEXT NOT NULL,
  note TEXT NOT NULL
);
CREATE INDEX traces_by_step ON traces (step);
CREATE INDEX traces_by_group ON traces (group_id);
CREATE INDEX traces_by_reward ON traces (reward, id);
CREATE INDEX traces_dropped ON traces (dropped, id) WHERE dropped IS NOT NULL;
CREATE TABLE tokens (
  trace INTEGER PRIMARY KEY, ids BLOB NOT NULL, logp BLOB NOT NULL, names TEXT NOT NULL, streams BLOB NOT NULL
);
CREATE TABLE vocabulary (token INTEGER PRIMARY KEY, piece TEXT NOT NULL);
CREATE TABLE events (
  id INTEGER PRIMARY KEY, time REAL NOT NULL, step INTEGER, kind TEXT NOT NULL, level TEXT NOT NULL, text TEXT NOT NULL
);
CREATE TABLE orders (id INTEGER PRIMARY KEY, time REAL NOT NULL, action TEXT NOT NULL, done REAL);
CREATE VIEW trace_text AS
  SELECT traces.id AS id, groups.prompt AS prompt, traces.text AS text
  FROM traces JOIN groups ON groups.id = traces.group_id;
"""
TABLE_NAMES = {"info", "metrics", "timings", "memory", "groups", "traces", "tokens", "vocabulary", "events", "orders"}
DRAWN = 1 << 20  # in the table of pictures: the place of what the first trace of a group drew, the others behind it
# Tables of runs that sample in other processes (on Ray), and of pictures; they are added to older stores when these are
# opened to write.
LEDGER = (
    "CREATE TABLE IF NOT EXISTS units (step INTEGER NOT NULL, drawn INTEGER NOT NULL, walk INTEGER NOT NULL, "
    "unit INTEGER NOT NULL, tasks INTEGER NOT NULL, version INTEGER NOT NULL, asked INTEGER NOT NULL, "
    "sampled INTEGER NOT NULL, scored INTEGER NOT NULL, late INTEGER NOT NULL, PRIMARY KEY (drawn, walk, unit))",
    "CREATE TABLE IF NOT EXISTS ledger (step INTEGER NOT NULL, drawn INTEGER NOT NULL, walk INTEGER NOT NULL, "
    "unit INTEGER NOT NULL, place INTEGER NOT NULL, sample INTEGER NOT NULL, task TEXT NOT NULL, "
    "length INTEGER NOT NULL, version INTEGER NOT NULL, fate TEXT NOT NULL, "
    "PRIMARY KEY (drawn, walk, unit, place, sample))",
    "CREATE TABLE IF NOT EXISTS pictures (group_id INTEGER NOT NULL, step INTEGER NOT NULL, place INTEGER NOT NULL, "
    "png BLOB NOT NULL, PRIMARY KEY (group_id, place))",
)
STEPS = {  # the columns of steps, by table
    **dict.fromkeys(("metrics", "timings", "memory", "groups", "traces", "events"), ("step",)),
    **dict.fromkeys(("units", "ledger"), ("step", "drawn")),
}
SEARCH = "CREATE VIRTUAL TABLE search USING fts5 (prompt, text, content='trace_text', content_rowid='id')"


def connect(path: Path, *, rewrite: bool = True) -> sqlite3.Connection:
    """Open the database for writing and create it if it is missing. Raises ValueError if it cannot be used.

    rewrite: bring a store of an older format to this one; not where another process may be writing the old one
    """
    if os.path.lexists(path) and (not os.path.isfile(path) or os.path.getsize(path)):
        refuse_odd(path)
    try:
        return _connect(path, rewrite)
    except sqlite3.Error as error:
        raise ValueError(f"{path} cannot be used: {error}; check the disk, or restore it from a copy") from None


def _connect(path: Path, rewrite: bool) -> sqlite3.Connection:
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")  # survives a killed process; RunRecorder.flush syncs for machine crashes
    version = db.execute("PRAGMA user_version").fetchone()[0]
    if version == 0:
        db.execute("BEGIN IMMEDIATE")
        for statement in TABLES.split(";\n"):
            if statement.strip():
                db.execute(statement)
        _add_search(db)
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    elif version not in (VERSION, FROM_ZERO):
        db.close()
        raise ValueError(_wrong_version(path, version))
    for statement in LEDGER:
        db.execute(statement)
    if version == FROM_ZERO and rewrite:
        _count_from_one(db)
    return db


def _count_from_one(db: sqlite3.Connection) -> None:
    """Rewrite a store of format 1. Steps pass through negative numbers, so that no row meets another's key."""
    db.execute("BEGIN IMMEDIATE")
    for table, columns in STEPS.items():
        for column in columns:
            db.execute(f"UPDATE {table} SET {column} = -{column} - 1")
            db.execute(f"UPDATE {table} SET {column} = -{column}")
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("COMMIT")


def _read_from_one(db: sqlite3.Connection) -> None:
    """Views of this connection that take the places of the tables of format 1, with steps that count from 1."""
    present = {row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    for table, steps in STEPS.items():
        if table in present:
            columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
            columns = [f"{name} + 1 AS {name}" if name in steps else name for name in columns]
            order = ["rowid AS rowid"] if table in ("metrics", "timings") else []  # readers sort by it
            db.execute(f"CREATE TEMP VIEW {table} AS SELECT {', '.join(order + columns)} FROM main.{table}")


def connect_to_read(path: Path, *, brief: bool = False) -> sqlite3.Connection:
    """Open the database read-only; in a folder without write permission, it is opened as immutable.

    brief: the caller closes the connection at once. Without a write-ahead log no process has the store open, so it is
    opened as immutable too, and SQLite creates no -wal and -shm files.
    """
    refuse_odd(path)
    address = path.absolute().as_uri()
    immutable = brief and not os.path.lexists(f"{path}-wal")
    try:
        try:
            db, version = _opened(f"{address}?mode=ro&immutable=1" if immutable else f"{address}?mode=ro")
        except sqlite3.OperationalError:
            db, version = _opened(f"{address}?mode=ro&immutable=1")
        if version in (VERSION, FROM_ZERO):
            tables = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            missing = TABLE_NAMES - {row[0] for row in tables}
            if version == FROM_ZERO and not missing:
                _read_from_one(db)
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path} cannot be read: {error}; restore it from a copy, or start a new run") from None
    if version not in (VERSION, FROM_ZERO):
        db.close()
        raise ValueError(_wrong_version(path, version))
    if missing:
        db.close()
        raise ValueError(
            f"{path} has no table {', '.join(sorted(missing))}: it is not a whole run store; restore it from a copy"
        )
    return db


def refuse_odd(path: Path) -> None:
    """Raise ValueError if the store is missing, empty or not a regular file (opening a FIFO would block forever)."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        raise ValueError(
            f"{path.parent} has no {FILE}: it is not the folder of a run, or an older burnish wrote it"
        ) from None
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if not stat.S_ISREG(mode):
        raise ValueError(f"{path} is {KINDS.get(stat.S_IFMT(mode), 'a device')}, not a file; restore it from a copy")
    for sqlite_file in (f"{path}-wal", f"{path}-shm", f"{path}-journal"):
        if os.path.lexists(sqlite_file) and not os.path.isfile(sqlite_file):
            raise ValueError(f"{sqlite_file} is not a file; remove it")
    if not os.path.getsize(path):
        raise ValueError(f"{path} is empty: nothing was recorded, or it was cut short; restore it from a copy")
    if not os.access(path, os.R_OK):
        raise ValueError(f"{path} cannot be read: Permission denied; change its permissions")


def _opened(address: str) -> tuple[sqlite3.Connection, int]:
    db = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, check_same_thread=False)
    return db, db.execute("PRAGMA user_version").fetchone()[0]


def searchable(db: sqlite3.Connection) -> bool:
    """Whether the store has a full-text index; it has none if SQLite was built without FTS5."""
    tables: int = db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'search'").fetchone()[0]
    return tables > 0


def _add_search(db: sqlite3.Connection) -> None:
    try:
        db.execute(SEARCH)
    except sqlite3.OperationalError:  # SQLite without FTS5: searches use LIKE, which is slower
        return


def _wrong_version(path: Path, version: int) -> str:
    return (
        f"{path} has the store format {version}, and this burnish reads formats up to {VERSION}; "
        "read it with the burnish that wrote it"
    )
