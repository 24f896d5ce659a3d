"""Control a running run through its store: pause, resume, checkpoint, stop. The run polls the table between steps."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from burnish.store.schema import FILE, connect

ACTIONS = ("pause", "resume", "checkpoint", "stop")


def order(folder: Path, action: str) -> None:
    """Send an order to the run in this folder; the run carries it out after its current step."""
    if action not in ACTIONS:
        raise ValueError(f"there is no order {action!r}; the orders are {', '.join(ACTIONS)}")
    if not (folder / FILE).is_file():
        raise ValueError(f"{folder} has no {FILE}: it is not the folder of a run")
    db = connect(folder / FILE, rewrite=False)
    try:
        db.execute("INSERT INTO orders (time, action) VALUES (?, ?)", (time.time(), action))
    finally:
        db.close()


class Orders:
    """Receive the orders that are sent to a run after this object was created."""

    def __init__(self, folder: Path) -> None:
        self._db = connect(folder / FILE)
        self._db.execute("PRAGMA busy_timeout = 2000")
        self._last = self._db.execute("SELECT ifnull(max(id), 0) FROM orders").fetchone()[0]

    def poll(self) -> list[str]:
        """Return the orders sent since the last poll, oldest first, and mark them as done."""
        try:
            rows = self._db.execute("SELECT id, action FROM orders WHERE id > ? ORDER BY id", (self._last,)).fetchall()
            if rows:
                self._last = rows[-1][0]
                self._db.execute("UPDATE orders SET done = ? WHERE done IS NULL", (time.time(),))
        except sqlite3.OperationalError:  # the database is locked: the next poll returns these orders
            return []
        return [action for _, action in rows]

    def close(self) -> None:
        self._db.close()
