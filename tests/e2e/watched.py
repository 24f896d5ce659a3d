"""What tests of rewards share: a run of tiny, and every reply that was sampled in it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import burnish
from burnish.core.loop import Report
from burnish.run.train import Run
from burnish.score.judge import reply_text

COMMON: dict[str, Any] = {"model": "tiny", "eval_every": 0, "save_every": 0, "device": "cpu", "eval_tasks": 0}


@dataclass(frozen=True)
class Reply:
    """A reply of the policy: `given` is what came with its task."""

    step: int
    key: str
    given: dict[str, Any]
    text: str
    right: bool
    length: int


class Watched:
    """A callback that keeps the replies of a run."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.metrics: list[dict[str, float]] = []

    def on_start(self, run: Run) -> None:
        self.chat = run.models["policy"].chat

    def on_step(self, report: Report) -> None:
        self.metrics.append(report.metrics)
        for group in report.groups["main"]:
            for trace in group.traces:
                found = reply_text(trace, self.chat), trace.scores["correct"] > 0, int(trace.by("policy").sum())
                self.replies.append(Reply(report.clock.step, group.task.key, dict(group.task.given), *found))

    def last(self, steps: int, **given: Any) -> list[Reply]:
        """The replies of the last steps to tasks with these columns."""
        since = len(self.metrics) - steps
        return [r for r in self.replies if r.step >= since and all(r.given.get(k) == v for k, v in given.items())]


def watched(method: str, folder: Path, **options: Any) -> Watched:
    """A run of 8 prompts with 8 replies each, with what was sampled in it."""
    seen = Watched()
    burnish.train(method, out=str(folder), callbacks=[seen], **{**COMMON, "prompts": 8, "n": 8, **options})
    return seen


def tuned(folder: Path, rows: str, steps: int) -> None:
    """tiny after SFT on the demonstrations of a file; the model is in folder/model."""
    burnish.train("sft", task=rows, out=str(folder), **{**COMMON, "prompts": 8, "steps": steps, "lr": 1e-3})


def mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def written(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    """A dataset in a file of JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)
