"""Orders to a running run, through its store: pause, go on, save a checkpoint, stop. The loop looks between steps."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from burnish.report.schema import FILE, connect

ACTIONS = ("pause", "resume", "checkpoint", "stop")


def order(folder: Path, action: str) -> None:
    """Ask the run in this folder for something; it is done when the step under way has ended."""
    if action not in ACTIONS:
        raise ValueError(f"there is no order {action!r}; the orders are {', '.join(ACTIONS)}")
    if not (folder / FILE).is_file():
        raise ValueError(f"{folder} has no {FILE}: it is not the folder of a run")
    db = connect(folder / FILE)
    try:
        db.execute("INSERT INTO orders (time, action) VALUES (?, ?)", (time.time(), action))
    finally:
        db.close()


class Orders:
    """The receiving end: what was asked since it was opened."""

    def __init__(self, folder: Path) -> None:
        self._db = connect(folder / FILE)
        self._db.execute("PRAGMA busy_timeout = 2000")
        self._last = self._db.execute("SELECT ifnull(max(id), 0) FROM orders").fetchone()[0]

    def heard(self) -> list[str]:
        """The orders that came since the last look, oldest first, marked as heard."""
        try:
            found = self._db.execute("SELECT id, action FROM orders WHERE id > ? ORDER BY id", (self._last,)).fetchall()
            if found:
                self._last = found[-1][0]
                self._db.execute("UPDATE orders SET done = ? WHERE done IS NULL", (time.time(),))
        except sqlite3.OperationalError:  # somebody is writing: the next look will find them
            return []
        return [action for _, action in found]

    def close(self) -> None:
        self._db.close()
