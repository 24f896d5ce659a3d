"""List the runs of a folder: configuration, progress, state and result of each."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from burnish.store.reader import RunStore, find_runs, open_store, state_of
from burnish.store.schema import FILE

RUNS = "runs"  # the default folder of `burnish train`
UNREADABLE = "unreadable"  # state of a run whose store cannot be read


@dataclass(frozen=True)
class Summary:
    """One run in a list. `same` is equal for runs that differ only in their seed."""

    path: Path
    name: str
    method: str
    task: str
    model: str
    seed: int
    step: int
    steps: int
    state: str
    paused: bool
    result: str
    created: float
    updated: float
    same: str
    title: str = ""  # --run-name
    tags: tuple[str, ...] = ()

    @property
    def age(self) -> str:
        return duration(time.time() - self.updated)


def summaries(root: str | Path) -> list[Summary]:
    """Every run at or below a folder, newest first. The result of an unreadable run is the error."""
    return sorted((listed(path, Path(root)) for path in find_runs(root)), key=lambda run: -run.created)


def listed(path: Path, root: Path) -> Summary:
    """Summary of the run in a folder; for an unreadable run, a summary with the error."""
    try:
        with open_store(path, brief=True) as store:
            return summary(store, root)
    except Exception as error:  # noqa: BLE001 - a damaged store can raise anything, and must not hide other runs
        return unreadable(path, root, error)


def unreadable(path: Path, root: Path, error: BaseException) -> Summary:
    """Summary of a run that cannot be read, with the error as its result."""
    message = str(error)
    if not isinstance(error, ValueError):
        message = f"{path / FILE} cannot be read: {type(error).__name__}: {error}"
    try:
        changed = os.lstat(path).st_mtime
    except OSError:
        changed = 0.0
    return Summary(
        path=path,
        name=name_of(path, root),
        method="?",
        task="?",
        model="?",
        seed=0,
        step=0,
        steps=0,
        state=UNREADABLE,
        paused=False,
        result=printable(message),
        created=changed,
        updated=changed,
        same=f"unreadable {path}",
    )


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn the errors that a damaged store causes inside the block into one ValueError."""
    try:
        yield
    except (TypeError, LookupError, ArithmeticError, AttributeError, sqlite3.Error, RecursionError) as error:
        raise ValueError(
            f"{path / FILE} is damaged ({type(error).__name__}: {printable(str(error))}); restore it from a copy"
        ) from error


def name_of(path: Path, root: Path) -> str:
    """A run's name in a list: its path relative to the listed folder."""
    return printable(path.name if path == root else str(path.relative_to(root)))


def printable(text: str, most: int = 300) -> str:
    """Text as one line of at most `most` characters, without control characters and lone surrogates."""
    text = text.encode("utf-8", "replace").decode("utf-8")
    return "".join(c if c.isprintable() else " " for c in text[:most])


_LISTED = ("config", "created", "updated", "state", "process", "paused")  # the facts that a list shows


def summary(store: RunStore, root: Path) -> Summary:
    """Summary of one run."""
    info = store.info(*_LISTED)
    config = info.get("config", {})
    if not isinstance(config, dict):
        raise ValueError(f"{store.folder / FILE} holds no configuration; restore it from a copy")
    last = store.sql("SELECT max(step) AS step FROM metrics")[0]["step"]
    name = name_of(store.folder, root)
    same = {
        key: value for key, value in sorted(config.items()) if key not in ("seed", "out", "device", "run_name", "tag")
    }
    created = float(info.get("created", 0.0))
    state = state_of(info)
    return Summary(
        path=store.folder,
        name=name,
        method=_option(config, "method"),
        task=_option(config, "task"),
        model=_option(config, "model"),
        seed=int(config.get("seed", 0)),
        step=int(last or 0),
        steps=int(config.get("steps", 0)),
        state=state,
        paused=state == "running" and bool(info.get("paused")),
        result=result_of(store, state),
        created=created,
        updated=float(info.get("updated", created)),
        same=str(same),
        title=printable(str(config.get("run_name") or "")),
        tags=tags_of(config.get("tag")),
    )


def tags_of(text: object) -> tuple[str, ...]:
    """The tags in the value of --tag."""
    return tuple(tag.strip() for tag in printable(str(text or "")).split(",") if tag.strip())


def _option(config: Mapping[str, object], name: str) -> str:
    return printable(str(config.get(name, "?")))


def result_of(store: RunStore, state: str) -> str:
    """Held-out score before and after training, or the last reward, as text."""
    evaluation = store.evaluation()
    before, after = (evaluation.get(when) for when in ("before", "after"))
    if after and state != "running":  # a resumed run has one from before it was resumed
        name = after["name"]
        reached = _written(name, after["value"]["mean"])
        return f"{_short(name)} " + (f"{_written(name, before['value']['mean'])} -> {reached}" if before else reached)
    last = store.sql("SELECT name, value FROM metrics WHERE name LIKE 'heldout/%' ORDER BY step DESC, rowid LIMIT 1")
    last = last or store.sql("SELECT name, value FROM metrics WHERE name = 'reward' ORDER BY step DESC LIMIT 1")
    if not last or last[0]["value"] is None:
        return ""
    name, value = last[0]["name"], last[0]["value"]
    start = f"{_written(name, before['value']['mean'])} -> " if before and name != "reward" else ""
    return f"{_short(name.removeprefix('heldout/'))} {start}{_written(name, value)} so far"


def pick(run: str, root: str | Path = RUNS) -> Path:
    """The run folder for a path, a name below `runs` or its beginning; "last" is the newest run."""
    for path in (Path(run), Path(root) / run):
        if os.path.lexists(path / FILE):
            return path
    runs = summaries(root)
    intact = [summary for summary in runs if summary.state != UNREADABLE]
    if run == "last" and intact:
        return intact[0].path
    matches = [summary for summary in runs if summary.name.startswith(run)]
    if len(matches) == 1:
        return matches[0].path
    if matches:
        names = ", ".join(summary.name for summary in matches[:5])
        raise ValueError(f"{run!r} begins the names of {len(matches)} runs: {names}; give more of the name")
    raise ValueError(f"there is no run {run!r}; burnish runs lists those in {root}/, or give the path of a run folder")


def duration(seconds: float) -> str:
    """A duration as text: 12 s, 5 min, 3 h, 2 d."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _short(name: str) -> str:
    from burnish.evals.better import short

    return short(name.removeprefix("held-out "))


def _written(name: str, mean: float) -> str:
    from burnish.evals.better import written

    return written(name, mean)
