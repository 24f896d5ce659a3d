"""What is done of a recipe: state.json in its folder, and steps.jsonl with the tokens and seconds of each step."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict

from burnish.core.loop import Report
from burnish.run.observers import Observer
from burnish.util.files import write_text
from burnish.util.plainfile import read_json

FILE, STEPS = "state.json", "steps.jsonl"


@dataclass
class StageState:
    """One stage: what it was started with, whether it is done, and its results.

    same     what makes it the same stage (PlannedStage.same)
    numbers  of a stage that measures: what it printed as JSON; of a stage that writes a file: its rows
    """

    name: str
    what: str
    same: dict[str, object]
    done: bool = False
    seconds: float = 0.0
    tokens: int = 0
    product: str = ""
    before: dict[str, object] | None = None
    after: dict[str, object] | None = None
    numbers: dict[str, object] = field(default_factory=dict)


class StepLine(TypedDict):
    """A line of steps.jsonl: the tokens of a step, and the seconds of its session so far.

    done  the steps of the stage that are done, this one among them; 0 before and after training
    """

    stage: str
    session: str
    done: int
    tokens: int
    seconds: float


class State:
    """The stages of a recipe's folder that were started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        stored = read_json(folder / FILE) if (folder / FILE).exists() else {}
        try:
            self.stages = {name: _stage(one) for name, one in stored.items()}
        except (AttributeError, TypeError) as error:
            raise ValueError(
                f"{folder / FILE} is damaged, it holds no list of stages ({error}); restore it from a copy, or start "
                "the recipe in another folder"
            ) from None

    def save(self) -> None:
        told = {name: asdict(one) for name, one in self.stages.items()}
        write_text(self.folder / FILE, json.dumps(told, indent=1) + "\n")

    def forget(self, name: str) -> None:
        """Set a stage back to the beginning; what it made is kept beside, as NAME.1, NAME.2, ..."""
        self.stages.pop(name, None)
        self.save()
        made = self.folder / name
        if made.exists():
            number = next(i for i in range(1, 10_000) if not (self.folder / f"{name}.{i}").exists())
            made.rename(self.folder / f"{name}.{number}")
        lines = [line for line in self._lines() if line["stage"] != name]
        write_text(self.folder / STEPS, "".join(json.dumps(line) + "\n" for line in lines))

    def spent(self, name: str) -> tuple[float, int]:
        """Seconds and tokens of a stage, in all sessions; a step that was repeated counts once."""
        sessions: dict[str, float] = {}
        tokens: dict[int, int] = {}
        for line in self._lines():
            if line["stage"] == name:
                sessions[line["session"]] = max(line["seconds"], sessions.get(line["session"], 0.0))
                tokens[line["done"]] = line["tokens"]
        return sum(sessions.values()), sum(tokens.values())

    def _lines(self) -> list[StepLine]:
        file = self.folder / STEPS
        lines = file.read_text().splitlines() if file.exists() else []
        return [step for line in lines if (step := _step(line)) is not None]  # a crash may have cut the last one


def _stage(told: Any) -> StageState:
    """A stage as it was stored; TypeError for anything else."""
    stage = StageState(**told)
    kinds = {"name": str, "what": str, "same": dict, "done": bool, "product": str, "numbers": dict}
    for key, kind in kinds.items():
        if not isinstance(getattr(stage, key), kind):
            raise TypeError(f"its {key} is {getattr(stage, key)!r:.40}")
    for key in ("before", "after"):
        if not isinstance(getattr(stage, key), dict | None):
            raise TypeError(f"its {key} is {getattr(stage, key)!r:.40}")
    for key in ("seconds", "tokens"):
        value = getattr(stage, key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeError(f"its {key} is {value!r:.40}")
    return stage


def _step(line: str) -> StepLine | None:
    """A line of steps.jsonl; None for one that is cut or damaged: it only counts tokens and time."""
    try:
        told = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(told, dict) and isinstance(told.get("step"), int):  # older files count the steps from 0
        told["done"] = told.pop("step") + 1
    wanted = {"stage": str, "session": str, "done": int, "tokens": int, "seconds": int | float}
    whole = isinstance(told, dict) and all(isinstance(told.get(key), kind) for key, kind in wanted.items())
    step: StepLine | None = told if whole else None
    return step


class Counting(Observer):
    """Writes the tokens and the time of each step of a stage to steps.jsonl."""

    def __init__(self, state: State, stage: str, clock: Callable[[], float] = time.monotonic) -> None:
        self.file, self.stage, self.clock = state.folder / STEPS, stage, clock
        self.began, self.session, self.last = clock(), f"{time.time():.3f}", 0

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        traces = [trace for groups in report.groups.values() for group in groups for trace in group.traces]
        traces += [one.trace for groups in report.dropped.values() for one in groups]
        turns = [turn for trace in traces for turn in trace.turns]
        self.last = report.clock.step + 1
        self.add(self.last, sum(turn.tokens.numel() for turn in turns))

    def add(self, done: int, tokens: int = 0) -> None:
        """One line; 0 is the time before and after training."""
        line = {"stage": self.stage, "session": self.session, "done": done, "tokens": tokens}
        with self.file.open("a") as file:
            file.write(json.dumps({**line, "seconds": round(self.clock() - self.began, 3)}) + "\n")
