"""train and resume, in this process or on Ray."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path

from burnish.api.callbacks import observers
from burnish.api.objects import PassedModel, passed_rewards, passed_task
from burnish.api.result import TrainResult
from burnish.config.options import Config, configure, one_length, renamed
from burnish.core.method import Method
from burnish.distributed import launch
from burnish.methods.table import Entry, entry_of, find
from burnish.run.folder import Folder
from burnish.run.observers import Observer, Observers
from burnish.run.train import PassedObjects, Result, execute, prepare


def train(
    method: str | Callable[..., Method] = "grpo",
    *,
    model: object = None,
    tokenizer: object = None,
    task: object = None,
    reward: object = None,
    callbacks: object = (),
    progress: bool | None = None,
    observer: Observer | None = None,
    **options: object,
) -> TrainResult:
    """Train a model: train("grpo", model="tiny", task="sort", steps=40, n=8). `burnish show METHOD` lists the options.

    method     a registered name, "path/to/file.py:function", or a function(task, *, ...) -> Method
    model      a name, a directory, owner/name of the hub, or a transformers model, whose weights are copied
    tokenizer  that of a model that is passed as an object
    task       a value of --task, rows (a list of dicts, a datasets.Dataset, any iterable of dicts), or a Source
    reward     a function, path/to/file.py:function, or several: [f, (g, 0.5)], {"format": f, "correct": g}
    callbacks  functions of a step's report, or objects with on_step, on_start, on_end, ... (docs/python.md)
    progress   print lines about the run; by default in notebooks only
    """
    entry = find(method) if isinstance(method, str) else entry_of(method)
    name = method if isinstance(method, str) else entry.name
    source, options = passed_task(task, options)
    rewards, options = passed_rewards(reward, options)
    own = PassedObjects(None if isinstance(method, str) else entry, source, rewards)
    if isinstance(model, str | os.PathLike):
        options["model"] = os.fspath(model)
    with (
        PassedModel(configure(entry, name, one_length(options)), model, tokenizer) as config,
        display(progress) as shown,
    ):
        result = run_anywhere(entry, config, Observers(shown, observers(callbacks, observer)), own=own)
    return _named(result, own, callbacks)


def resume(
    folder: str | Path,
    *,
    method: Callable[..., Method] | None = None,
    task: object = None,
    reward: object = None,
    callbacks: object = (),
    progress: bool | None = None,
    observer: Observer | None = None,
    **changed: object,
) -> TrainResult:
    """Resume a run from its newest valid checkpoint, bit for bit. `changed` may raise the number of steps.

    If the run's method, task or reward was a Python object, pass it again: resume(folder, task=..., reward=...).
    """
    place, stored = Folder.open(Path(folder))
    name = stored.pop("method")
    entry = entry_of(method) if method is not None else find(name)
    source, changed = passed_task(task, changed)
    rewards, changed = passed_rewards(reward, changed)
    if changed.get("reward", stored.get("reward")) != stored.get("reward"):
        raise ValueError(
            f"the run in {folder} was trained with reward {stored.get('reward')!r}, not {changed['reward']!r}; pass "
            "the same one, or start a new run"
        )
    stored = renamed(entry, stored)
    if one_length(changed).get("steps") is not None:
        stored.pop("epochs", None)
    config = configure(entry, name, {**stored, **changed})
    own = PassedObjects(entry if method is not None else None, source, rewards)
    with display(progress) as shown:
        result = run_anywhere(entry, config, Observers(shown, observers(callbacks, observer)), place, own)
    return _named(result, own, callbacks)


def run_anywhere(
    entry: Entry, config: Config, observer: Observer, folder: Folder | None = None, own: PassedObjects | None = None
) -> Result:
    """Run in this process (and the other ranks that a launcher started) or on Ray, as the option `on` says."""
    own = own or PassedObjects()
    if config.options.on == "ray":
        from burnish.distributed.ray.driver import run_on_ray

        return run_on_ray(entry, config, observer, folder, own)
    if launch.wanted(config.options.ranks) > 1:
        raise ValueError(
            f"--ranks {config.options.ranks} needs as many processes, and a Python program is one; start it with "
            f"torchrun --nproc-per-node {config.options.ranks} FILE.py, or use burnish train"
        )
    launch.check_elastic(config.options.elastic)
    ranks = launch.join(config.options.device, config.options.rank_timeout)
    if folder is not None:
        folder.writes = not ranks.rank
        folder.lock()  # before looking for the newest checkpoint, which another writer might remove
    try:
        return execute(prepare(entry, config, folder, own.task, rewards=own.rewards), observer)
    finally:
        if folder is not None:
            folder.release()


class _Silent(Observer):
    """Shows nothing."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None: ...


def display(wanted: bool | None) -> AbstractContextManager[Observer]:
    """The display of a run: lines without control codes, which every notebook shows; by default in notebooks only."""
    if not (in_notebook() if wanted is None else wanted):
        return _Silent()
    from rich.console import Console

    from burnish.report.progress import ProgressLines

    return ProgressLines(Console(file=sys.stdout, force_jupyter=False, force_terminal=False, width=120))


def in_notebook() -> bool:
    """Whether this is a Jupyter kernel."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ in ("ZMQInteractiveShell", "Shell")  # Jupyter's, Colab's


def _named(result: Result, own: PassedObjects, callbacks: object) -> TrainResult:
    return TrainResult(
        **{field.name: getattr(result, field.name) for field in fields(result)}, own=own, callbacks=callbacks
    )
