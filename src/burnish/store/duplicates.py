"""Find and remove duplicate steps in a store that two processes wrote to; the copy that was written first is kept.

A step is one transaction, with one row in `memory`. So a step with k rows there was written k times: each of its
metrics and timings has k rows, and its groups form k blocks of consecutive ids. Both processes computed the same step
from the same checkpoint.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from pathlib import Path

from burnish.store.reader import RunStore
from burnish.store.schema import FILE, connect, searchable


@dataclass(frozen=True)
class Duplicates:
    """What is wrong with the steps of a store; falsy if nothing is.

    steps       steps that were written more than once
    mixed       duplicate steps whose copies cannot be separated
    missing     steps without a row, below the last one
    disordered  groups are not in the order of their steps
    """

    steps: tuple[int, ...] = ()
    mixed: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    disordered: bool = False

    def __bool__(self) -> bool:
        return bool(self.steps or self.mixed or self.missing or self.disordered)

    def __str__(self) -> str:
        faults = []
        if self.steps:
            faults.append(f"{_steps(self.steps)} written more than once")
        if self.mixed:
            faults.append(f"the traces of {_steps(self.mixed)} cannot be told apart")
        if self.missing:
            faults.append(f"{_steps(self.missing)} missing")
        if self.disordered and not self.steps:
            faults.append("steps are out of order")
        return ", ".join(faults)


def find_duplicates(store: RunStore) -> Duplicates:
    """Duplicate, missing and disordered steps of a store; falsy for a store with a single writer."""
    times = {row["step"]: row["n"] for row in store.sql("SELECT step, count(*) AS n FROM memory GROUP BY step")}
    named = store.sql("SELECT DISTINCT step FROM (SELECT step FROM metrics GROUP BY step, name HAVING count(*) > 1)")
    doubled = sorted({step for step, n in times.items() if n > 1} | {row["step"] for row in named})
    groups = {row["step"]: row["n"] for row in store.sql("SELECT step, count(*) AS n FROM groups GROUP BY step")}
    mixed = [step for step in doubled if groups.get(step, 0) % max(2, times.get(step, 0))]
    last = max(times, default=0)
    missing = [step for step in range(1, last + 1) if step not in times] if times else []
    order = [row["step"] for row in store.sql("SELECT step FROM groups ORDER BY id")]
    return Duplicates(tuple(doubled), tuple(mixed), tuple(missing), order != sorted(order))


def heal(folder: Path) -> Duplicates:
    """Delete duplicate steps and renumber ids in the order of steps, as a single writer would have left them.

    Returns the faults that were found. The caller holds the folder's lock. Raises ValueError, and changes nothing, if
    the copies of a step cannot be separated.
    """
    with RunStore(folder) as store:
        duplicates = find_duplicates(store)
    if duplicates.mixed:
        raise ValueError(
            f"{folder / FILE} cannot be healed: the traces of {_steps(duplicates.mixed)} cannot be told apart; "
            "resume the run from a copy of its folder that is older than that"
        )
    if not (duplicates.steps or duplicates.disordered):
        return duplicates
    db = connect(folder / FILE)
    try:
        db.execute("BEGIN IMMEDIATE")
        _heal(db)
        db.execute("COMMIT")
    finally:
        db.close()
    return duplicates


def _heal(db: sqlite3.Connection) -> None:
    db.execute("CREATE TEMP TABLE times AS SELECT step, count(*) AS n FROM memory GROUP BY step")
    for table, key in (("metrics", "step, name"), ("timings", "step, room"), ("memory", "step")):
        db.execute(f"DELETE FROM {table} WHERE rowid NOT IN (SELECT min(rowid) FROM {table} GROUP BY {key})")
        db.execute(f"CREATE TEMP TABLE sorted AS SELECT * FROM {table} ORDER BY step, rowid")
        db.execute(f"DELETE FROM {table}")
        db.execute(f"INSERT INTO {table} SELECT * FROM sorted ORDER BY rowid")
        db.execute("DROP TABLE sorted")
    # keep the first of the k blocks of groups of each step, and number the groups from 1 in the order of steps
    db.execute(
        "CREATE TEMP TABLE kept AS SELECT row_number() OVER (ORDER BY step, id) AS new, id FROM ("
        "SELECT id, groups.step AS step, row_number() OVER (PARTITION BY groups.step ORDER BY id) AS place, "
        "count(*) OVER (PARTITION BY groups.step) AS many, ifnull(n, 1) AS n FROM groups LEFT JOIN times USING (step)"
        ") WHERE place <= many / n"
    )
    db.execute(
        "CREATE TEMP TABLE kept_traces AS SELECT row_number() OVER (ORDER BY kept.new, traces.id) AS new, "
        "traces.id AS id, kept.new AS group_id FROM traces JOIN kept ON kept.id = traces.group_id"
    )
    _renumber(db, "groups", "id", "SELECT kept.new, {columns} FROM groups JOIN kept USING (id)", ("id",))
    query = "SELECT kept_traces.new, kept_traces.group_id, {columns} FROM traces JOIN kept_traces USING (id)"
    _renumber(db, "traces", "id, group_id", query, ("id", "group_id"))
    query = "SELECT kept_traces.new, {columns} FROM tokens JOIN kept_traces ON kept_traces.id = tokens.trace"
    _renumber(db, "tokens", "trace", query, ("trace",))
    if searchable(db):
        db.execute("INSERT INTO search (search) VALUES ('rebuild')")


def _renumber(db: sqlite3.Connection, table: str, ids: str, query: str, new: tuple[str, ...]) -> None:
    """Replace a table's rows by the rows of a query, whose first columns are the new ids."""
    columns = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] not in new]
    rest = ", ".join(f"{table}.{name}" for name in columns)
    db.execute(f"CREATE TEMP TABLE renumbered AS {query.format(columns=rest)}")
    db.execute(f"DELETE FROM {table}")
    db.execute(f"INSERT INTO {table} ({ids}, {', '.join(columns)}) SELECT * FROM renumbered ORDER BY 1")
    db.execute("DROP TABLE renumbered")


def _steps(steps: tuple[int, ...]) -> str:
    """Step numbers in words: "step 3", "steps 3 to 40", "steps 3, 7, 9"."""
    if len(steps) == 1:
        return f"step {steps[0]}"
    if steps == tuple(range(steps[0], steps[-1] + 1)):
        return f"steps {steps[0]} to {steps[-1]}"
    return f"steps {', '.join(map(str, steps[:8]))}{' ...' if len(steps) > 8 else ''}"
