"""What the dashboard asks, answered from the stores: plain functions from a folder and a query to JSON-able values."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from burnish.report.catalogue import Summary, summary
from burnish.report.control import order
from burnish.report.definitions import DEFINITIONS
from burnish.report.health import RECENT, WINDOW, Limits, worries
from burnish.report.schema import FILE
from burnish.report.store import ORDERS, Store, find_runs, open_store

Query = dict[str, str]
SPARK = 60  # points of the small curve in the list
PAGE, MOST = 50, 200
RUNS_MOST = 12  # runs whose traces of one prompt are put side by side


class Api:
    """The runs below one folder. A run is addressed by its name in the list, so that no other file can be asked for."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._cache: dict[Path, tuple[Any, dict[str, Any]]] = {}
        self.answers: dict[str, Callable[[Query], Any]] = {
            "runs": self.runs,
            "metrics": self.metrics,
            "traces": self.traces,
            "trace": self.trace,
            "groups": self.groups,
            "prompt": self.prompt,
            "steps": self.steps,
            "definitions": lambda query: [dataclasses.asdict(one) for one in DEFINITIONS],
        }

    def folders(self) -> dict[str, Path]:
        """Every run by its name."""
        return {_name(path, self.root): path for path in find_runs(self.root)}

    def open(self, query: Query) -> Store:
        """The store that a query is about."""
        name = query.get("run", "")
        folder = self.folders().get(name)
        if folder is None:
            raise ValueError(f"there is no run {name!r} in {self.root}")
        return open_store(folder)

    def runs(self, query: Query) -> list[dict[str, Any]]:
        """The list, the newest first; a run that has not changed is not read again."""
        found = []
        for path in find_runs(self.root):
            try:
                stamp = _stamp(path)
                if (
                    path not in self._cache
                    or self._cache[path][0] != stamp
                    or self._cache[path][1]["state"] == "running"
                ):
                    with open_store(path) as store:
                        self._cache[path] = (stamp, _listed(summary(store, self.root), store))
                found.append(self._cache[path][1])
            except (ValueError, OSError):
                continue
        return sorted(found, key=lambda run: -run["created"])

    def metrics(self, query: Query) -> dict[str, Any]:
        """Numbers and seconds after a step, by name; what happened after an event; the run's state and worries."""
        with self.open(query) as store:
            after, event = int(query.get("after", -1)), int(query.get("event", 0))
            info, rows = store.info(), store.metrics(after)
            limits = Limits(**info.get("limits", {}))
            return {
                "run": _listed(summary(store, self.root), store),
                "config": info.get("config", {}), "environment": info.get("environment", {}), "git": info.get("git"), "lr": info.get("lr"),
                "evaluation": store.evaluation(),
                "metrics": _columns(rows), "timings": _columns(store.timings(after)), "events": store.events(event),
                "worries": worries(rows if after < 0 else _history(store), limits),
            }  # fmt: skip

    def steps(self, query: Query) -> dict[str, Any]:
        """The steps of which traces are kept, the phases they come from, and whether more will come: the way to browse."""
        with self.open(query) as store:
            steps = store.sql("SELECT DISTINCT step FROM groups ORDER BY step")
            phases = store.sql("SELECT DISTINCT phase FROM groups")
            found = {"steps": [row["step"] for row in steps], "phases": [row["phase"] for row in phases]}
            return {**found, "state": store.state()}

    def traces(self, query: Query) -> dict[str, Any]:
        """A page of traces. `more` says whether there is another."""
        limit = min(MOST, int(query.get("limit", PAGE)))
        chosen: dict[str, Any] = {"order": query.get("order", "newest"), "offset": int(query.get("offset", 0))}
        if chosen["order"] not in ORDERS:
            raise ValueError(f"there is no order {chosen['order']!r}; the orders are {', '.join(ORDERS)}")
        for name, kind in (
            ("step", int),
            ("group", int),
            ("least", float),
            ("most", float),
            ("task", str),
            ("phase", str),
        ):
            if query.get(name):
                chosen[name] = kind(query[name])
        for name in ("correct", "dropped"):
            if query.get(name):
                chosen[name] = query[name] == "1"
        with self.open(query) as store:
            rows = store.traces(**chosen, search=query.get("search", ""), limit=limit + 1)
        return {"rows": [_short(row) for row in rows[:limit]], "more": len(rows) > limit}

    def groups(self, query: Query) -> dict[str, Any]:
        """A page of groups, each with the scores of its traces."""
        limit, step = min(MOST, int(query.get("limit", PAGE))), query.get("step")
        order = "oldest" if query.get("order") == "oldest" else "newest"
        with self.open(query) as store:
            rows = store.groups(
                int(step) if step else None, order=order, limit=limit + 1, offset=int(query.get("offset", 0))
            )
        return {"rows": [{**row, "prompt": row["prompt"][:600]} for row in rows[:limit]], "more": len(rows) > limit}

    def trace(self, query: Query) -> dict[str, Any]:
        """One trace with its tokens and streams, and the rest of its group."""
        with self.open(query) as store:
            found = store.trace(int(query.get("id", 0)))
            return {**found, "siblings": [_short(row) for row in store.traces(group=found["group_id"], limit=MOST)]}

    def prompt(self, query: Query) -> list[dict[str, Any]]:
        """The same task wherever it was met: in every step of every run here, the asked one first."""
        folders, asked = self.folders(), query.get("run", "")
        names = sorted(folders, key=lambda name: name != asked)[:RUNS_MOST]
        found = []
        for name in names:
            with open_store(folders[name]) as store:
                rows = store.traces(task=query.get("task", ""), limit=MOST)
            found += [{"run": name, **_short(row)} for row in rows]
        return found

    def order(self, query: Query) -> dict[str, str]:
        """Pause, resume, checkpoint or stop a run."""
        with self.open(query) as store:
            folder, state = store.folder, store.state()
        if state != "running":
            raise ValueError(f"this run is {state}; only a running one takes orders")
        order(folder, query.get("action", ""))
        return {"ordered": query["action"]}


def _listed(run: Summary, store: Store) -> dict[str, Any]:
    """A run in the list: its summary, and a small curve of its reward (or of what it has instead)."""
    from burnish.report.numbers import trained_series

    first = store.sql("SELECT name, value FROM metrics WHERE step = (SELECT min(step) FROM metrics)")
    name = trained_series({row["name"]: row["value"] for row in first})
    points = store.sql("SELECT value FROM metrics WHERE name = ? ORDER BY step", name or "")
    values = [row["value"] for row in points if row["value"] is not None]
    stride = max(1, len(values) // SPARK)
    spark = [sum(values[i : i + stride]) / len(values[i : i + stride]) for i in range(0, len(values), stride)]
    return {**dataclasses.asdict(run), "path": str(run.path), "spark": spark, "curve": name or ""}


def _history(store: Store) -> list[dict[str, Any]]:
    """The first steps and the last: all that detectors look at."""
    last = store.sql("SELECT max(step) AS step FROM metrics")[0]["step"] or 0
    if last < WINDOW + RECENT:
        return store.metrics()
    return [*store.metrics(upto=RECENT - 1), *store.metrics(last - WINDOW)]


def _short(row: dict[str, Any]) -> dict[str, Any]:
    """A trace in a list: long texts are cut."""
    return {**row, "prompt": row["prompt"][:600], "text": row["text"][:600], "given": None}


def _columns(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rows of steps as columns: smaller on the way, and what charts want."""
    names = dict.fromkeys(name for row in rows for name in row if name != "step")
    return {"steps": [row["step"] for row in rows], "series": {name: [row.get(name) for row in rows] for name in names}}


def _name(path: Path, root: Path) -> str:
    return path.name if path == root else str(path.relative_to(root))


def _stamp(path: Path) -> tuple[float, ...]:
    """When the store and what is beside it last changed."""
    files = (path / FILE, path / f"{FILE}-wal", path / "evaluation.json")
    return tuple(file.stat().st_mtime if file.is_file() else 0.0 for file in files)
