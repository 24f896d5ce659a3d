"""The dashboard's API: answers to queries from the run stores, as JSON-serialisable values."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from burnish.report.catalogue import UNREADABLE, Summary, name_of, printable, readable, summary, unreadable
from burnish.report.definitions import definitions
from burnish.report.manager import Manager
from burnish.report.orders import carry_out, queue_of, schema
from burnish.report.titles import titles
from burnish.report.tree import Node, calls_in, tree_of
from burnish.store.health import RECENT, WINDOW, HealthLimits, worries
from burnish.store.reader import ORDERS, RunStore, find_runs, open_store
from burnish.store.records import Evaluation, TraceOrder, TraceRow
from burnish.store.schema import FILE
from burnish.util.json_types import Json

Query = dict[str, str]
SPARK = 60  # points of the sparkline in the list of runs
PAGE, MOST = 50, 200
_CHANGING = ("running", UNREADABLE)  # states that may change while the store's files do not
RUNS_MOST = 12  # runs whose traces of one prompt are compared


class Api:
    """Queries on the runs below one folder. Runs are addressed by name, so no other file can be read."""

    def __init__(self, root: Path, *, read_only: bool = False) -> None:
        self.root, self.read_only = root, read_only
        self.manager = Manager(root)
        self._cache: dict[Path, tuple[object, dict[str, Any]]] = {}
        self.answers: dict[str, Callable[[Query], object]] = {
            "runs": self.runs,
            "metrics": self.metrics,
            "traces": self.traces,
            "trace": self.trace,
            "groups": self.groups,
            "tree": self.tree,
            "prompt": self.prompt,
            "steps": self.steps,
            "queue": lambda query: {**queue_of(self.manager), "read_only": self.read_only},
            "schema": lambda query: schema(query.get("method", "grpo")),
            "log": lambda query: {"text": self.manager.log(query.get("run", ""))},
            "definitions": lambda query: [dataclasses.asdict(entry) for entry in definitions()],
        }

    def ask(self, name: str, query: Query) -> bytes | None:
        """The answer to a query, as JSON; None if there is no such query. Raises ValueError, also where a store is odd:
        a store that was damaged or written by hand can hold anything in any place.
        """
        answer = self.answers.get(name)
        if answer is None:
            return None
        with readable(self.folders().get(query["run"], self.root) if "run" in query else self.root):
            return _as_json(answer(query))

    def folders(self) -> dict[str, Path]:
        """The folder of every run, by name."""
        return {name_of(path, self.root): path for path in find_runs(self.root)}

    def open(self, query: Query) -> RunStore:
        """Open the store of the run that a query names."""
        name = query.get("run", "")
        folder = self.folders().get(name)
        if folder is None:
            raise ValueError(f"there is no run {name!r} in {self.root}")
        return open_store(folder)

    def runs(self, query: Query) -> list[dict[str, Any]]:
        """The list of runs, newest first; summaries of unchanged runs are cached."""
        rows = []
        for path in find_runs(self.root):
            stamp = _stamp(path)
            if path not in self._cache or self._cache[path][0] != stamp or self._cache[path][1]["state"] in _CHANGING:
                self._cache[path] = (stamp, self._row(path))
            rows.append(self._cache[path][1])
        notes = self.manager.notes()
        return sorted((_noted(row, notes.get(row["name"], {})) for row in rows), key=lambda run: -run["created"])

    def _row(self, path: Path) -> dict[str, object]:
        """One row of the list; for an unreadable run, a row with the error."""
        try:
            with open_store(path, brief=True) as store:
                row = _listed(summary(store, self.root), store)
            _as_json(row)
            return row
        except Exception as error:  # noqa: BLE001 - a damaged store can raise anything, and must not hide other runs
            run = unreadable(path, self.root, error)
            return {**dataclasses.asdict(run), "path": printable(str(path)), "spark": [], "curve": ""}

    def metrics(self, query: Query) -> dict[str, object]:
        """Metrics and timings after a step, events after an event, and the run's state and health warnings."""
        with self.open(query) as store:
            after, event = _integer(query, "after", 0), _integer(query, "event", 0)
            info, rows = store.info(), store.metrics(after)
            limits = HealthLimits(**info.get("limits", {}))
            return {
                "run": _listed(summary(store, self.root), store),
                "config": info.get("config", {}),
                "environment": info.get("environment", {}),
                "git": info.get("git"),
                "lr": info.get("lr"),
                "evaluation": {when: one and _measured(one) for when, one in store.evaluation().items()},
                "metrics": _columns(rows),
                "titles": titles(
                    [*dict.fromkeys(name for row in rows for name in row if name != "step"), *_held(store)]
                ),
                "timings": _columns(store.timings(after)),
                "events": store.events(event),
                "worries": worries(rows if after <= 0 else _history(store), limits),
            }

    def steps(self, query: Query) -> dict[str, object]:
        """The steps and phases with recorded traces, and the run's state."""
        with self.open(query) as store:
            steps = store.sql("SELECT DISTINCT step FROM groups ORDER BY step")
            phases = store.sql("SELECT DISTINCT phase FROM groups")
            return {
                "steps": [row["step"] for row in steps],
                "phases": [row["phase"] for row in phases],
                "state": store.state(),
            }

    def traces(self, query: Query) -> dict[str, object]:
        """A page of traces; `more` is true if there is another page."""
        limit = _page(query)
        filters: dict[str, Any] = {"order": query.get("order", "newest"), "offset": _integer(query, "offset", 0)}
        if filters["order"] not in ORDERS:
            raise ValueError(f"there is no order {filters['order']!r}; the orders are {', '.join(ORDERS)}")
        filters |= {name: _integer(query, name, 0) for name in ("step", "group") if query.get(name)}
        filters |= {name: _number(query, name) for name in ("least", "most") if query.get(name)}
        filters |= {name: query[name] for name in ("task", "phase") if query.get(name)}
        for name in ("correct", "dropped"):
            if query.get(name):
                filters[name] = query[name] == "1"
        with self.open(query) as store:
            rows = store.traces(**filters, search=query.get("search", ""), limit=limit + 1)
        return {"rows": [_short(row) for row in rows[:limit]], "more": len(rows) > limit}

    def groups(self, query: Query) -> dict[str, object]:
        """A page of groups, each with the scores of its traces."""
        limit, step = _page(query), _integer(query, "step", 0) if query.get("step") else None
        order: TraceOrder = "oldest" if query.get("order") == "oldest" else "newest"
        with self.open(query) as store:
            rows = store.groups(step, order=order, limit=limit + 1, offset=_integer(query, "offset", 0))
        return {"rows": [{**row, "prompt": row["prompt"][:600]} for row in rows[:limit]], "more": len(rows) > limit}

    def trace(self, query: Query) -> dict[str, object]:
        """One trace with its tokens and streams, and the other traces of its group."""
        with self.open(query) as store:
            trace = store.trace(_integer(query, "id", 0))
            siblings = [_short(row) for row in store.traces(group=trace["group_id"], limit=MOST)]
            shown = [_as_image(png) for png in store.pictures(trace["group_id"])]
            own = store.drawn(trace["group_id"], trace["place"])
            drawn = None if own is None else _as_image(own)
        return {**trace, "calls": calls_in(trace), "siblings": siblings, "pictures": shown, "drawn": drawn}

    def tree(self, query: Query) -> list[Node]:
        """The replies of a group's traces as a tree."""
        with self.open(query) as store:
            rows = store.traces(group=_integer(query, "group", 0), limit=MOST)
            return tree_of([{**row, "tokens": store.tokens(row["id"])} for row in rows])

    def prompt(self, query: Query) -> list[dict[str, object]]:
        """Traces of one task from every step of every run, those of the queried run first."""
        folders, queried = self.folders(), query.get("run", "")
        names = sorted(folders, key=lambda name: name != queried)[:RUNS_MOST]
        traces = []
        for name in names:
            try:
                with readable(folders[name]), open_store(folders[name]) as store:
                    rows = [_short(row) for row in store.traces(task=query.get("task", ""), limit=MOST)]
                    _as_json(rows)
            except (ValueError, OSError):
                if name == queried:
                    raise
                continue  # unreadable; the list of runs shows the error
            traces += [{"run": name, **row} for row in rows]
        return traces

    def order(self, query: Query) -> dict[str, object]:
        """Control a run, start or queue one, or file it (report/orders.py)."""
        if self.read_only:
            raise ValueError("this dashboard is read-only; start burnish ui without --read-only")

        def run() -> tuple[Path, str]:
            with self.open(query) as store:
                return store.folder, store.state()

        return carry_out(self.manager, query, run)


def _as_image(png: bytes) -> str:
    """A picture as the address of an <img>."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"


def _as_json(value: object) -> bytes:
    """JSON as browsers read it: null for NaN and infinities, "?" for lone surrogates."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "replace")


def _finite(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _integer(query: Query, name: str, default: int) -> int:
    """An integer of a query, within SQLite's 64 bits."""
    text = query.get(name, str(default))
    if not re.fullmatch("-?[0-9]{1,18}", text, re.ASCII):
        raise ValueError(f"{name} must be a whole number, not {text[:40]!r}")
    return int(text)


def _number(query: Query, name: str) -> float:
    """A finite number of a query."""
    try:
        number = float(query[name])
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a number, not {query[name][:40]!r}")
    return number


def _page(query: Query) -> int:
    """Rows per page of a query, 1 to MOST."""
    return max(1, min(MOST, _integer(query, "limit", PAGE)))


def _noted(row: dict[str, Any], note: Mapping[str, Json]) -> dict[str, Any]:
    """A row of the list with what people wrote down of the run: a note, further tags, whether it is in the archive."""
    tags = note.get("tags")
    more = [str(tag) for tag in tags if tag not in row["tags"]] if isinstance(tags, list) else []
    written = {"note": str(note.get("note") or ""), "archived": bool(note.get("archived")), "own_tags": more}
    return {**row, **written, "tags": [*row["tags"], *more]}


def _listed(run: Summary, store: RunStore) -> dict[str, Any]:
    """A run in the list: its summary, and a sparkline of its reward (or loss, for a run without rewards)."""
    from burnish.report.numbers import trained_series

    first = store.sql("SELECT name, value FROM metrics WHERE step = (SELECT min(step) FROM metrics)")
    name = trained_series({row["name"]: row["value"] for row in first})
    points = store.sql("SELECT value FROM metrics WHERE name = ? ORDER BY step", name or "")
    values = [row["value"] for row in points if row["value"] is not None]
    stride = max(1, len(values) // SPARK)
    spark = [sum(values[i : i + stride]) / len(values[i : i + stride]) for i in range(0, len(values), stride)]
    return {**vars(run), "path": str(run.path), "spark": spark, "curve": name or ""}


def _held(store: RunStore) -> list[str]:
    """The metric of the evaluations before and after training, as it is named among the metrics of a step."""
    return [name for one in store.evaluation().values() if one for name in _measured(one)["metrics"]]


def _measured(stored: Evaluation) -> dict[str, Any]:
    """A stored evaluation with its values by the names of metrics; the first is the measure."""
    from burnish.evals.heldout import Outcome

    return {**stored, "metrics": Outcome.from_json({"shown": [], **stored}).metrics()}


def _history(store: RunStore) -> list[dict[str, Any]]:
    """Metrics of the first RECENT and the last WINDOW steps, which are all that the health detectors use."""
    last = store.sql("SELECT max(step) AS step FROM metrics")[0]["step"] or 0
    if last < WINDOW + RECENT:
        return store.metrics()
    return [*store.metrics(upto=RECENT), *store.metrics(last - WINDOW)]


def _short(row: TraceRow) -> TraceRow:
    """A trace in a list, with long texts truncated."""
    return {**row, "prompt": row["prompt"][:600], "text": row["text"][:600], "given": None}


def _columns(rows: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """Rows of steps as columns, the form that charts need, and smaller as JSON."""
    names = dict.fromkeys(name for row in rows for name in row if name != "step")
    return {"steps": [row["step"] for row in rows], "series": {name: [row.get(name) for row in rows] for name in names}}


def _stamp(path: Path) -> tuple[float, ...]:
    """Modification times of the store, its write-ahead log and the evaluation."""
    files = (path / FILE, path / f"{FILE}-wal", path / "evaluation.json")
    return tuple(os.stat(file).st_mtime if os.path.isfile(file) else 0.0 for file in files)
