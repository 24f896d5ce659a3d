"""The run store's tables: one SQLite database in each run folder, in WAL mode, written by the run and read by everybody.

What a rerun repeats exactly (metrics, groups, traces, tokens) stands apart from what it does not (timings, events).
docs/store.md describes every column, with queries.
"""

from __future__ import annotations

import sqlite3
from pathlib import Path

FILE = "store.sqlite"
VERSION = 1
BUSY_SECONDS = 10.0  # how long a reader or a writer waits for the other before it says so

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
  text TEXT NOT NULL, turns TEXT NOT NULL, scores TEXT NOT NULL, turn_scores TEXT NOT NULL, tags TEXT NOT NULL, note TEXT NOT NULL
);
CREATE INDEX traces_by_step ON traces (step);
CREATE INDEX traces_by_group ON traces (group_id);
CREATE INDEX traces_by_reward ON traces (reward, id);
CREATE INDEX traces_dropped ON traces (dropped, id) WHERE dropped IS NOT NULL;
CREATE TABLE tokens (trace INTEGER PRIMARY KEY, ids BLOB NOT NULL, logp BLOB NOT NULL, names TEXT NOT NULL, streams BLOB NOT NULL);
CREATE TABLE vocabulary (token INTEGER PRIMARY KEY, piece TEXT NOT NULL);
CREATE TABLE events (
  id INTEGER PRIMARY KEY, time REAL NOT NULL, step INTEGER, kind TEXT NOT NULL, level TEXT NOT NULL, text TEXT NOT NULL
);
CREATE TABLE orders (id INTEGER PRIMARY KEY, time REAL NOT NULL, action TEXT NOT NULL, done REAL);
CREATE VIEW trace_text AS
  SELECT traces.id AS id, groups.prompt AS prompt, traces.text AS text FROM traces JOIN groups ON groups.id = traces.group_id;
"""
LEDGER = (  # of runs whose samples are made in other processes; stores of older runs get these tables when they are written to
    "CREATE TABLE IF NOT EXISTS units (step INTEGER NOT NULL, drawn INTEGER NOT NULL, walk INTEGER NOT NULL, unit INTEGER NOT NULL, "
    "tasks INTEGER NOT NULL, version INTEGER NOT NULL, asked INTEGER NOT NULL, sampled INTEGER NOT NULL, scored INTEGER NOT NULL, "
    "late INTEGER NOT NULL, PRIMARY KEY (drawn, walk, unit))",
    "CREATE TABLE IF NOT EXISTS ledger (step INTEGER NOT NULL, drawn INTEGER NOT NULL, walk INTEGER NOT NULL, unit INTEGER NOT NULL, "
    "place INTEGER NOT NULL, sample INTEGER NOT NULL, task TEXT NOT NULL, length INTEGER NOT NULL, version INTEGER NOT NULL, "
    "fate TEXT NOT NULL, PRIMARY KEY (drawn, walk, unit, place, sample))",
)
SEARCH = "CREATE VIRTUAL TABLE search USING fts5 (prompt, text, content='trace_text', content_rowid='id')"


def connect(path: Path) -> sqlite3.Connection:
    """The database for writing, made where there is none."""
    db = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("PRAGMA synchronous = NORMAL")  # a killed process loses nothing; see Recorder.flush for a dead machine
    found = db.execute("PRAGMA user_version").fetchone()[0]
    if found == 0:
        db.execute("BEGIN IMMEDIATE")
        for statement in TABLES.split(";\n"):
            if statement.strip():
                db.execute(statement)
        _add_search(db)
        db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")
    elif found != VERSION:
        db.close()
        raise ValueError(_wrong_version(path, found))
    for statement in LEDGER:
        db.execute(statement)
    return db


def connect_to_read(path: Path) -> sqlite3.Connection:
    """The database for reading alone. In a folder that cannot be written, the file is read as it lies."""
    if not path.is_file():
        raise ValueError(f"{path.parent} has no {FILE}: it is not the folder of a run, or an older burnish wrote it")
    address = path.resolve().as_uri()
    try:
        db = sqlite3.connect(f"{address}?mode=ro", uri=True, timeout=BUSY_SECONDS, check_same_thread=False)
        found = db.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.OperationalError:
        db = sqlite3.connect(f"{address}?mode=ro&immutable=1", uri=True, check_same_thread=False)
        found = db.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.DatabaseError as error:
        raise ValueError(f"{path} cannot be read: {error}; restore it from a copy, or start a new run") from None
    if found != VERSION:
        raise ValueError(_wrong_version(path, found))
    return db


def searchable(db: sqlite3.Connection) -> bool:
    """Whether texts are indexed: not where Python's SQLite came without FTS5."""
    return db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'search'").fetchone()[0] > 0


def _add_search(db: sqlite3.Connection) -> None:
    try:
        db.execute(SEARCH)
    except sqlite3.OperationalError:  # no FTS5 here: searching reads the texts themselves, more slowly
        return


def _wrong_version(path: Path, found: int) -> str:
    return f"{path} has the store format {found}, and this burnish reads format {VERSION}; read it with the burnish that wrote it"
