"""The one place that turns what a user calls a task into a source."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Any

import yaml

from burnish.tasks.dataset import Dataset
from burnish.tasks.gym import ReasoningGym
from burnish.tasks.rewarded import Rewarded
from burnish.tasks.rewards import load_function
from burnish.tasks.source import Source
from burnish.tasks.table import BUILTIN, source
from burnish.tasks.timed import TimedReward

IN_PYTHON = "python:"  # how config.yaml writes down a source that was passed as an object


def resolve_task(
    task: str | Source, reward: str | None = None, *, seconds: float | None = None, drop_failed: bool = False, workers: int = 0
) -> Source:  # fmt: skip
    """A built-in ("sort", "sort:3"), a reasoning_gym dataset ("gym:chain_sum"), a file, a folder or a hub dataset;
    a source of the user's own is itself.

    Options follow after commas: "gym:chain_sum,max_terms=2" for a generator, "data.jsonl,prompt=text" to name a column.
    seconds: how long the reward function may take, in a process of its own. workers: how many calls of it run beside sampling.
    """
    found = _named(task) if isinstance(task, str) else task
    if not reward:
        return found
    function = load_function(reward) if seconds is None else TimedReward(reward, seconds)
    return Rewarded(found, function, drop_failed=drop_failed, workers=workers)


def _named(name: str) -> Source:
    if name.startswith(IN_PYTHON):
        raise ValueError(
            f"the task {name.removeprefix(IN_PYTHON)!r} was passed as a Python object, which no file can hold; "
            "pass it again: burnish.resume(folder, task=...)"
        )
    name, options = _split_options(name)
    if name.startswith("gym:"):
        return ReasoningGym(name.removeprefix("gym:"), **options)
    if name.partition(":")[0] in BUILTIN:
        return source(name, **options)
    if Path(name).exists() or "/" in name or Path(name).suffix:
        return Dataset(name, columns={part: str(column) for part, column in options.items()} or None)
    near = difflib.get_close_matches(name, BUILTIN, 3, 0.4)
    hint = f"did you mean {' or '.join(near)}?" if near else f"the built-in ones are {', '.join(BUILTIN)}"
    raise ValueError(
        f"there is no task {name!r}: {hint} A dataset is a path or a hub name with a slash, reasoning_gym is gym:NAME"
    )


def _split_options(name: str) -> tuple[str, dict[str, Any]]:
    """What comes before the first ",key=value", and the keys and values after it."""
    base, *pieces = name.split(",")
    if not pieces or Path(name).exists():
        return name, {}
    for piece in pieces:
        if "=" not in piece:
            raise ValueError(f"task {name!r}: {piece!r} is not an option; write key=value after each comma")
    return base, {key.strip(): yaml.safe_load(value) for key, value in (piece.split("=", 1) for piece in pieces)}
