"""The runs of a folder, each in a line: what it was, how far it got, how it ended."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from burnish.report.store import Store, find_runs, open_store, state_of

RUNS = "runs"  # where `burnish train` puts its folders


@dataclass(frozen=True)
class Summary:
    """One run in a list. `same` is equal for runs that differ in their seed alone."""

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

    @property
    def age(self) -> str:
        return spoken_age(time.time() - self.updated)


def summaries(root: str | Path) -> list[Summary]:
    """Every run at or below a folder, the newest first. What is not readable is left out."""
    found = []
    for path in find_runs(root):
        try:
            with open_store(path) as store:
                found.append(summary(store, Path(root)))
        except (ValueError, OSError):
            continue
    return sorted(found, key=lambda run: -run.created)


def summary(store: Store, root: Path) -> Summary:
    """What a list says of one run."""
    info = store.info()
    config = info.get("config", {})
    last = store.sql("SELECT max(step) AS step FROM metrics")[0]["step"]
    name = store.folder.name if store.folder == root else str(store.folder.relative_to(root))
    kept = {key: value for key, value in sorted(config.items()) if key not in ("seed", "out", "device")}
    created = info.get("created", 0.0)
    state = state_of(info)
    return Summary(
        path=store.folder, name=name, method=str(config.get("method", "?")), task=str(config.get("task", "?")),
        model=str(config.get("model", "?")), seed=int(config.get("seed", 0)), step=0 if last is None else last + 1,
        steps=int(config.get("steps", 0)), state=state, paused=state == "running" and bool(info.get("paused")),
        result=result_of(store), created=created, updated=info.get("updated", created), same=str(kept),
    )  # fmt: skip


def result_of(store: Store) -> str:
    """Held-out before and after, or the last reward, as a few words."""
    found = store.evaluation()
    before, after = (found.get(when) for when in ("before", "after"))
    if after:
        name = after["name"]
        return f"{_written(name, before)} -> {_written(name, after)}" if before else _written(name, after)
    last = store.sql("SELECT name, value FROM metrics WHERE name LIKE 'heldout/%' ORDER BY step DESC LIMIT 1")
    last = last or store.sql("SELECT name, value FROM metrics WHERE name = 'reward' ORDER BY step DESC LIMIT 1")
    if not last or last[0]["value"] is None:
        return ""
    name, value = last[0]["name"], last[0]["value"]
    return f"{_written(name, {'value': {'mean': value}})} so far" + (" (reward)" if name == "reward" else "")


def pick(run: str, root: str | Path = RUNS) -> Path:
    """The run folder that a word means: a path, a name below `runs`, or the beginning of one name; "last" is the newest."""
    for path in (Path(run), Path(root) / run):
        if any(True for _ in find_runs(path)) and (path / "store.sqlite").is_file():
            return path
    known = summaries(root)
    if run == "last" and known:
        return known[0].path
    near = [one for one in known if one.name.startswith(run)]
    if len(near) == 1:
        return near[0].path
    if near:
        raise ValueError(
            f"{run!r} begins the names of {len(near)} runs: {', '.join(one.name for one in near[:5])}; say more"
        )
    raise ValueError(f"there is no run {run!r}; burnish runs lists those in {root}/, or give the path of a run folder")


def spoken_age(seconds: float) -> str:
    """12 s, 5 min, 3 h, 2 d."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def _written(name: str, outcome: dict[str, Any]) -> str:
    from burnish.report.numbers import written

    return written(name, outcome["value"]["mean"])
