"""What the dashboard's page may ask to be done, and what its forms need to know."""

from __future__ import annotations

import typing
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from burnish.config.flags import Flag, flags_of, flags_of_method
from burnish.config.help import FIRST, grouped
from burnish.config.options import Options, method_types
from burnish.core.option import typed
from burnish.methods.index import INDEX
from burnish.methods.table import find
from burnish.report.manager import Manager
from burnish.store.control import ACTIONS, order
from burnish.util.json_types import Json
from burnish.util.untrusted import parse_json

Query = dict[str, str]
MOST_NOTE = 4000  # characters
HIDDEN = {"out", "device", "run_name", "ranks", "tag"}  # fields of their own in the form, or of a command


def schema(method: str) -> dict[str, object]:
    """The options of a method for a form: groups of fields with type, default, help and choices."""
    if method not in INDEX:
        raise ValueError(f"there is no method {method[:60]!r}; burnish methods lists them")
    entry = find(method)
    kinds = {**typing.get_type_hints(Options, include_extras=True), **method_types(entry)}
    own, every = flags_of_method(entry), flags_of(Options)
    named = {flag.name: flag for flag in every}
    first = [named[name] for name in FIRST if name not in HIDDEN]
    groups = {method: own, "The ones that matter first": first}
    groups |= {
        title: [flag for flag in flags if flag not in first and flag.name not in HIDDEN]
        for title, flags in grouped(every).items()
    }
    return {
        "method": method,
        "summary": entry.summary,
        "groups": [
            {"title": title, "fields": [_field(flag, kinds.get(flag.name)) for flag in flags]}
            for title, flags in groups.items()
            if flags
        ],
    }


def _field(flag: Flag, kind: object) -> dict[str, object]:
    option = typed(kind)[1]
    return {**asdict(flag), "choices": list(option.choices), "range": option.range()}


def carry_out(manager: Manager, query: Query, run: Callable[[], tuple[Path, str]]) -> dict[str, object]:
    """Do what an order asks. run: the folder and the state of the run that it names."""
    action, name = query.get("action", ""), query.get("run", "")
    if action == "start":
        options = parse_json(query.get("options", "{}").encode())
        if not isinstance(options, dict):
            raise ValueError("the options of a run are a JSON object")
        try:
            job = manager.start(query.get("method", ""), options, query.get("device") or "auto")
        except ValueError as error:  # an answer to the form, which shows it beside its fields
            return {"refused": str(error)}
        return {"job": asdict(job)}
    if action == "cancel":
        manager.cancel(query.get("job", ""))
    elif action == "restore":
        manager.restore(name)
    else:
        folder, state = run()
        _of_run(manager, query, action, folder, state)
    return {"ordered": action}


def _of_run(manager: Manager, query: Query, action: str, folder: Path, state: str) -> None:
    name = query.get("run", "")
    if action in ACTIONS:
        if state != "running":
            raise ValueError(f"this run is {state}; only a running run takes orders")
        order(folder, action)
    elif action == "proceed":
        if state == "running":
            raise ValueError("this run is running already")
        manager.proceed(name, folder, query.get("steps", ""), query.get("device") or "auto")
    elif action in ("archive", "unarchive"):
        manager.note(name, archived=action == "archive")
    elif action == "note":
        manager.note(name, note=query.get("note", "")[:MOST_NOTE])
    elif action == "tags":
        tags = [tag.strip()[:40] for tag in query.get("tags", "").split(",") if tag.strip()]
        manager.note(name, tags=list[Json](tags[:20]))
    elif action == "delete":
        if state == "running":
            raise ValueError("this run is running; stop it before it is deleted")
        manager.delete(name, folder)
    else:
        raise ValueError(f"there is no order {action[:40]!r}")


def queue_of(manager: Manager) -> dict[str, object]:
    """The queue and the bin, for the page."""
    jobs = [{**asdict(job), "words": " ".join(["burnish", *job.words])} for job in manager.jobs()]
    return {"jobs": jobs, "deleted": manager.deleted(), "methods": list(INDEX)}
