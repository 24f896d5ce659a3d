"""The run store: one SQLite database per run. The run records into it; the dashboard, reports and users read it."""

from burnish.store.reader import RunStore, find_runs, open_store

__all__ = ["RunStore", "find_runs", "open_store"]
