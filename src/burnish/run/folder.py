"""A run folder: config.yaml, metrics.jsonl, timings.jsonl, traces.jsonl, events.jsonl, evaluation.json, checkpoints/, model/."""

from __future__ import annotations

import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from burnish.cast.chat import Chat
from burnish.loop import Report
from burnish.run.config import Config, identity
from burnish.run.disk import sweep, write_text

TRACES_PER_STEP = 4


class Folder:
    """Writes what a run does, a line at a time, so that whatever happens next is no loss."""

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
        if not self.fresh or (self.path / "metrics.jsonl").exists() or (self.path / "checkpoints").exists():
            return
        for name in ("config.yaml", "evaluation.json", "events.jsonl"):
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

    def log(self, report: Report, extra: dict[str, float]) -> None:
        self._append("metrics.jsonl", {name: _finite(value) for name, value in {**report.metrics, **extra}.items()})
        seconds = {name: round(s, 4) for name, s in report.seconds.items()}
        self._append("timings.jsonl", {"step": report.clock.step, **seconds, "memory_mb": round(report.memory, 1)})

    def log_traces(self, report: Report, chat: Chat) -> None:
        """A few traces of the step, as people would read them."""
        for phase, groups in report.groups.items():
            for group in groups[:TRACES_PER_STEP]:
                for trace in group.traces[:TRACES_PER_STEP]:
                    turns = [
                        {
                            "author": turn.author,
                            "text": chat.tokenizer.decode(turn.tokens.tolist()),
                            "version": turn.version,
                        }
                        for turn in trace.turns
                    ]
                    row = {
                        "step": report.clock.step,
                        "phase": phase,
                        "task": group.task.key,
                        "scores": trace.scores,
                        "turns": turns,
                        "note": trace.note,
                    }
                    self._append("traces.jsonl", row)

    def cut(self, step: int) -> None:
        """Forget what was logged at `step` and later: a resumed run writes it again."""
        for name in ("metrics.jsonl", "timings.jsonl", "traces.jsonl", "events.jsonl"):
            file = self.path / name
            if file.is_file():
                kept = [line for line in file.read_text(errors="replace").splitlines() if _step_of(line) < step]
                write_text(file, "".join(f"{line}\n" for line in kept))

    def event(self, step: int, kind: str, said: str) -> None:
        """Something that happened to the run rather than in it: a refused update, a damaged file, growing memory."""
        self._append("events.jsonl", {"step": step, "kind": kind, "said": said})

    def identity(self) -> str:
        """The hash that says which run's folder this is."""
        return identity(yaml.safe_load((self.path / "config.yaml").read_text()))

    def save_json(self, name: str, value: object) -> None:
        write_text(self.path / name, json.dumps(value, indent=1) + "\n")

    def read_json(self, name: str) -> Any:
        file = self.path / name
        return json.loads(file.read_text()) if file.is_file() else None

    def metrics(self) -> list[dict[str, Any]]:
        file = self.path / "metrics.jsonl"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.is_file() else []

    def _append(self, name: str, row: dict[str, Any]) -> None:
        try:
            with (self.path / name).open("a") as file:
                file.write(json.dumps(row, default=str) + "\n")
        except OSError as error:
            raise ValueError(
                f"could not write {self.path / name}: {error.strerror}; free some disk space and use --resume {self.path}"
            ) from None


def _finite(value: float) -> float | None:
    return value if isinstance(value, int) or math.isfinite(value) else None


def _step_of(line: str) -> float:
    """The step a line is about; a line that was cut off in the middle of writing counts as later than everything."""
    try:
        return json.loads(line)["step"]
    except ValueError:
        return math.inf
