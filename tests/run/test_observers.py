"""The observers of a run: one list, one order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runs import go

from burnish.core.loop import Report
from burnish.run.observers import Observer, Observers
from burnish.run.train import Result, Run, observed_by
from burnish.store.reader import open_store

EVENTS = [name for name in vars(Observer) if not name.startswith("_")]


class Heard(Observer):
    def __init__(self, name: str, heard: list[Any]) -> None:
        self.name, self.heard = name, heard

    def __getattribute__(self, event: str) -> Any:
        if event not in EVENTS:
            return super().__getattribute__(event)
        return lambda *given, **named: self.heard.append((event, self.name, given, named))


@pytest.mark.parametrize("event", EVENTS)
def test_every_event_reaches_everyone_in_order(event: str) -> None:
    heard: list[Any] = []
    everyone = Observers(Heard("a", heard), Observers(Heard("b", heard)))
    everyone.add(Heard("c", heard))
    given = {"stepped": ("report", {}, 1.0), "evaluated": ("before", None), "event": ("saved", "text")}
    arguments = given.get(event, () if event in ("begun", "stopping") else ("x",))
    getattr(everyone, event)(*arguments)
    assert [(what, name, args) for what, name, args, _ in heard] == [(event, name, arguments) for name in "abc"]


def test_a_warning_is_logged_and_shown() -> None:
    heard: list[Any] = []
    Observers(Heard("a", heard)).warn("memory", "it grows", 3)
    assert heard == [
        ("event", "a", ("memory", "it grows"), {"level": "warning", "step": 3}),
        ("warned", "a", ("it grows",), {}),
    ]


class Watching(Observer):
    """Notes the events of a run, and at each step what the observers before and after it have done."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def started(self, run: Run) -> None:
        self.run = run
        self.events.append("started")

    def begun(self) -> None:
        self.events.append("begun")

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        measured = report.memory > 0 and "saving" in report.seconds
        saved = (self.run.folder.path / "checkpoints" / f"step-{report.clock.step + 1:06d}").exists()
        self.events.append(f"step, measured {measured}, saved {saved}")

    def saved(self, path: Path) -> None:
        self.events.append(f"saved {path.name}")

    def ended(self, stopped: bool) -> None:
        self.events.append(f"ended, stopped {stopped}")

    def finished(self, result: Result) -> None:
        self.events.append("finished")


def test_the_order_of_a_run(small_model: Path, tmp_path: Path) -> None:
    """A step is measured before callbacks see it, and saved after; callbacks hear of the save when it is on disk."""
    first, second = Watching(), Watching()
    go("sft", small_model, tmp_path / "run", steps=2, save_every=1, observer=Observers(first, second))
    step = "step, measured True, saved False"
    assert first.events == second.events
    assert [event for event in first.events if not event.startswith("saved")] == [
        "started",
        "begun",
        step,
        step,
        "ended, stopped False",
        "finished",
    ]
    saved = [event for event in first.events if event.startswith("saved")]
    assert saved == ["saved step-000001", "saved step-000002"]
    assert first.events.index(saved[0]) > first.events.index(step)
    with open_store(tmp_path / "run") as store:
        kinds = [row["kind"] for row in store.sql("SELECT kind FROM events ORDER BY time, rowid")]
    assert kinds == ["started", "saved", "saved", "finished"]


def test_the_list_is_as_documented() -> None:
    mine = Observer()
    everyone, control = observed_by(None, mine, Observer(), None)  # type: ignore[arg-type]
    names = [type(one).__name__ for one in everyone]
    assert names == ["Measurements", "Observer", "Observer", "Monitor", "Control"]
    assert list(everyone)[2] is mine and list(everyone)[-1] is control
