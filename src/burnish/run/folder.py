"""A run folder: config.yaml, store.sqlite, evaluation.json, refused/, checkpoints/, model/."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from burnish.report.recorder import cut
from burnish.report.schema import FILE
from burnish.report.store import open_store
from burnish.run.config import Config, identity
from burnish.run.disk import sweep, write_text


class Folder:
    """Where a run lives, and the way to its store."""

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path, self.fresh = path, fresh

    @classmethod
    def create(cls, config: Config) -> Folder:
        """A new folder; one that holds a run already is refused."""
        task = "".join(c if c.isalnum() else "-" for c in Path(config.options.task).name)
        method = "".join(c if c.isalnum() or c == "_" else "-" for c in config.method.split(":")[-1])
        path = Path(config.options.out or f"runs/{method}-{task}-{datetime.now():%Y%m%d-%H%M%S}")
        if path.is_dir():
            sweep(path)  # a process that was killed while it made the folder
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise ValueError(
                f"the run folder {path} exists already; go on with it by --resume {path}, or choose another --out"
            )
        path.mkdir(parents=True, exist_ok=True)
        write_text(path / "config.yaml", yaml.safe_dump(config.to_dict(), sort_keys=False))
        return cls(path, fresh=True)

    def discard_if_unused(self) -> None:
        """Take away a folder that this process made, if no step was logged and no checkpoint saved; files of others stay."""
        if not self.fresh or (self.path / "checkpoints").exists() or self.metrics():
            return
        for name in ("config.yaml", "evaluation.json", FILE, f"{FILE}-wal", f"{FILE}-shm"):
            (self.path / name).unlink(missing_ok=True)
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()

    @classmethod
    def open(cls, path: Path) -> tuple[Folder, dict[str, Any]]:
        """An existing folder and its configuration."""
        file = path / "config.yaml"
        if not file.is_file():
            raise ValueError(
                f"{path} is not a run folder: it has no config.yaml; pass the folder that `burnish train` wrote"
            )
        return cls(path), yaml.safe_load(file.read_text())

    def cut(self, step: int) -> None:
        """Forget what was logged at `step` and later: a resumed run writes it again."""
        cut(self.path, step)

    def identity(self) -> str:
        """The hash that says which run's folder this is."""
        return identity(yaml.safe_load((self.path / "config.yaml").read_text()))

    def save_json(self, name: str, value: object) -> None:
        write_text(self.path / name, json.dumps(value, indent=1) + "\n")

    def read_json(self, name: str) -> Any:
        file = self.path / name
        return json.loads(file.read_text()) if file.is_file() else None

    def metrics(self) -> list[dict[str, Any]]:
        """One dict a step, as logged so far."""
        if not (self.path / FILE).is_file():
            return []
        with open_store(self.path) as store:
            return store.metrics()
