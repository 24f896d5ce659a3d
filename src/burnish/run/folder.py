"""A run folder: config.yaml, store.sqlite, evaluation.json, kernels.json, refused/, checkpoints/, model/; run.lock in
use.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from burnish.config.options import Config
from burnish.config.resumable import ENDS, identity
from burnish.run.lock import NAME, RUN, RunLock
from burnish.store.reader import open_store
from burnish.store.recorder import cut
from burnish.store.schema import FILE
from burnish.util.files import is_partial, remove_directory, sweep, write_text
from burnish.util.plainfile import read_json, read_yaml

START = "start"  # the directory of a model that was passed as a Python object


def begins(entry: dict[str, Any]) -> int:
    """The steps that were done when an entry of kernels.json, rows.json or scorers.json begins to hold.

    Older files call them `step`: the first step from then on, counted from 0.
    """
    return int(entry["after"] if "after" in entry else entry["step"])


class Folder:
    """A run's folder. A process that writes into it must hold its lock: `lock()`, then `release()`.

    writes: False in the ranks of a run that only read: rank 0 writes for all, and has the lock.
    """

    def __init__(self, path: Path, *, fresh: bool = False, writes: bool = True) -> None:
        self.path, self.fresh, self.writes = path, fresh, writes
        self._lock: RunLock | None = None

    def lock(self, part: tuple[int, int] = RUN) -> None:
        """Become the only writer of this folder; raise ValueError naming the process that holds the lock."""
        if self._lock is None and self.writes:
            self._lock = RunLock.take(self.path, part)

    def confirm(self) -> None:
        """Raise ValueError if a locked folder was deleted or replaced, or is locked by another process by now."""
        if self._lock is not None:
            self._lock.confirm()

    def release(self) -> None:
        """Release the lock; the folder stays."""
        if self._lock is not None:
            self._lock.release()
        self._lock = None

    @property
    def guarded(self) -> bool:
        """Whether the lock works: False on a file system without locks."""
        return self._lock is None or self._lock.works

    @classmethod
    def create(cls, config: Config) -> Folder:
        """Create and lock a new folder; raise ValueError if it holds a run already."""
        path = Path(config.options.out) if config.options.out else _default_path(config)
        try:
            cls._refuse_used(path)
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(_cannot_make(path, error)) from None
        folder = cls(path, fresh=True)
        folder.lock()
        try:
            sweep(path)  # removes what a process left that was killed while creating the folder
            cls._refuse_used(path)
            write_text(path / "config.yaml", yaml.safe_dump(config.to_dict(), sort_keys=False))
        except OSError as error:
            folder.release()
            raise ValueError(
                f"cannot write into the run folder {path} ({error.strerror}); choose another --out"
            ) from None
        except BaseException:
            folder.release()
            raise
        return folder

    @classmethod
    def reserve(cls, config: Config) -> Path:
        """The folder of a run that is not created yet, with nothing in it, for a model that was passed as an object."""
        path = Path(config.options.out) if config.options.out else _default_path(config)
        try:
            cls._refuse_used(path)
            path.mkdir(parents=True, exist_ok=True)
            if (path / START).exists():  # of a process that was killed while it started a run
                remove_directory(path / START)
        except OSError as error:
            raise ValueError(_cannot_make(path, error)) from None
        return path

    @staticmethod
    def _refuse_used(path: Path) -> None:
        """Raise ValueError if a folder holds anything but what a process left that was killed while creating it."""
        unused = (NAME, START)
        if path.exists() and (
            not path.is_dir() or any(p.name not in unused and not is_partial(p) for p in path.iterdir())
        ):
            raise ValueError(
                f"the run folder {path} exists already; resume it with --resume {path}, or choose another --out"
            )

    def discard_if_unused(self) -> None:
        """Remove a folder that this process created if it has no logged step and no checkpoint; other files stay."""
        try:
            if not self.fresh or not self.writes or (self.path / "checkpoints").exists() or self.metrics():
                return
            own = ("config.yaml", "evaluation.json", "kernels.json", "rows.json", "scorers.json")
            for name in (*own, FILE, f"{FILE}-wal", f"{FILE}-shm"):
                (self.path / name).unlink(missing_ok=True)
            self.release()
            if self.path.is_dir() and not any(self.path.iterdir()):
                self.path.rmdir()
        except (OSError, ValueError):  # the run already ends with an error, and that one is reported
            return

    @classmethod
    def open(cls, path: Path) -> tuple[Folder, dict[str, Any]]:
        """An existing folder and its configuration."""
        file = path / "config.yaml"
        if not file.is_file():
            raise ValueError(
                f"{path} is not a run folder: it has no config.yaml; pass the folder that `burnish train` wrote"
            )
        stored = read_yaml(file)
        if not isinstance(stored, dict) or not isinstance(stored.get("method"), str):
            raise ValueError(f"{file} names no method, so {path} cannot be used; restore the file from a copy")
        return cls(path), stored

    def renew(self, config: Config) -> None:
        """Write the options that say when a resumed run ends into config.yaml: the next resume needs no flag."""
        stored, options = self.open(self.path)[1], config.to_dict()
        old = "updates" in options and "updates" not in stored  # its `epochs` are the present `updates`
        now = {**stored, **{name: options[name] for name in ENDS if not (old and name == "epochs")}}
        if now != stored and self.writes:
            write_text(self.path / "config.yaml", yaml.safe_dump(now, sort_keys=False))

    def cut(self, step: int) -> None:
        """Delete what was logged at `step` and later: a resumed run logs it again."""
        if self.writes:
            cut(self.path, step)

    def identity(self) -> str:
        """The hash of the run's configuration (config/options.py)."""
        return identity(self.open(self.path)[1])

    def save_json(self, name: str, value: object) -> None:
        if not self.writes:
            return
        write_text(self.path / name, json.dumps(value, indent=1) + "\n")

    def read_json(self, name: str) -> Any:
        """The contents of one of the folder's JSON files; None if it does not exist."""
        return read_json(self.path / name) if (self.path / name).exists() else None

    def metrics(self) -> list[dict[str, Any]]:
        """The logged metrics, one dict per step."""
        if not os.path.lexists(self.path / FILE):
            return []
        with open_store(self.path, brief=True) as store:
            return store.metrics()


def _default_path(config: Config) -> Path:
    """Make runs/NAME with --run-name (and the date, if that exists), or runs/METHOD-TASK-DATE (and a number).

    Of several runs that start in the same second each makes a folder of its own.
    """
    date, options = f"{datetime.now():%Y%m%d-%H%M%S}", config.options
    task = "".join(c if c.isalnum() else "-" for c in Path(options.task.partition("@")[0]).name)
    method = "".join(c if c.isalnum() or c == "_" else "-" for c in config.method.split(":")[-1])
    name = "".join(c if c.isalnum() or c in "._-" else "-" for c in options.run_name or "").strip(".-") or "run"
    wanted = [name, f"{name}-{date}"] if options.run_name else [f"{method}-{task}-{date}"]
    path = Path("runs")
    try:
        path.mkdir(exist_ok=True)
        for last in itertools.chain(wanted, (f"{wanted[-1]}-{number}" for number in itertools.count(2))):
            path = Path("runs") / last
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                break
    except OSError as error:
        raise ValueError(_cannot_make(path, error)) from None
    return path


def _cannot_make(path: Path, error: OSError) -> str:
    return f"cannot make the run folder {str(path)[:200]} ({error.strerror}); choose another --out"
