"""The dashboard's run manager: the queue, the form's schema, notes, archive and bin. Its processes are real."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from runs import go

from burnish.report.api import Api
from burnish.report.manager import Manager
from burnish.report.orders import schema
from burnish.store.reader import open_store


def wait(manager: Manager, seconds: float = 60.0) -> dict[str, str]:
    """The state of each job when none runs or waits any more."""
    end = time.monotonic() + seconds
    while any(job.state in ("queued", "running") for job in manager.jobs()) and time.monotonic() < end:
        time.sleep(0.02)
    return {job.run: job.state for job in manager.jobs()}


def test_one_run_for_each_device_and_the_next_when_it_ends(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    for run, device in (("a", "cpu"), ("b", "cpu"), ("c", "cuda:1")):
        manager._add(["--version"], device, run)
    first = {job.run: job.state for job in Manager(tmp_path)._read()}
    assert first["a"] in ("running", "done") and first["c"] in ("running", "done")
    assert wait(manager) == {"a": "done", "b": "done", "c": "done"}
    assert manager.log("b").startswith("burnish ")


def test_a_queued_job_is_cancelled_and_a_failed_one_keeps_its_log(tmp_path: Path) -> None:
    manager = Manager(tmp_path)
    manager._add(["no-such-command"], "cpu", "wrong")
    job = manager._add(["--version"], "cpu", "later")
    if job.state == "queued":
        manager.cancel(job.id)
        assert wait(manager)["later"] == "cancelled"
    assert wait(manager)["wrong"] == "failed" and "there is no command" in manager.log("wrong")
    with pytest.raises(ValueError, match="only a run that still waits"):
        manager.cancel("99")


def test_a_new_manager_finds_the_jobs_of_an_earlier_one(tmp_path: Path) -> None:
    """By process id: this process lives; the id 2^22 + 1 is above the largest that Linux gives."""
    jobs = [
        {"id": str(i), "words": [], "device": "cpu", "run": run, "state": "running", "pid": pid, "asked": 0.0}
        for i, (run, pid) in enumerate((("alive", os.getpid()), ("gone", 2**22 + 1)), 1)
    ]
    (tmp_path / ".burnish-queue.json").write_text(json.dumps({"jobs": jobs}))
    assert [job.state for job in Manager(tmp_path).jobs()] == ["running", "done"]


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("grpo", {"n": "0"}, "it must be"),
        ("grpo", {"stepz": "3"}, "has no option 'stepz'"),
        ("grpo", {"lr": "nan"}, "finite"),
        ("mine.py:f", {}, "started with burnish train"),
        ("grpo", {"out": "/tmp/x"}, "fields of their own"),
    ],
)
def test_options_are_refused_as_the_command_line_refuses_them(
    method: str, options: dict[str, str], said: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=said):
        Manager(tmp_path).start(method, options)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_words_of_a_run_are_those_of_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manager = Manager(tmp_path)
    monkeypatch.setattr(manager, "_add", lambda words, device, run: (words, device, run))
    (tmp_path / "first").mkdir()
    found = manager.start("dpo", {"task": "add", "merge": True, "lr": 1e-4, "name": "first", "lora": ""}, "cpu")
    words = ["train", "dpo", "--task=add", "--merge=true", "--lr=0.0001", "--device", "cpu"]
    assert found == ([*words, "--out", str(tmp_path / "first-2")], "cpu", "first-2")


def test_the_form_has_every_option_once_with_its_choices_and_range() -> None:
    told = schema("grpo")
    fields = [one for group in told["groups"] for one in group["fields"]]  # type: ignore[attr-defined]
    names = [one["name"] for one in fields]
    assert len(names) == len(set(names)) and {"n", "beta", "model", "lr", "on_nan"} <= set(names)
    by_name = {one["name"]: one for one in fields}
    assert "adamw8bit" in by_name["optimiser"]["choices"] and by_name["steps"]["range"] == "at least 1"
    assert by_name["n"]["default"] == "8" and by_name["n"]["help"]
    with pytest.raises(ValueError, match="there is no method"):
        schema("nothing")


@pytest.fixture
def shown(small_model: Path, tmp_path: Path) -> Api:
    go("sft", small_model, tmp_path / "runs" / "one", steps=1)
    return Api(tmp_path / "runs")


def test_runs_are_noted_filed_deleted_and_restored(shown: Api) -> None:
    shown.order({"run": "one", "action": "note", "note": "warm"})
    shown.order({"run": "one", "action": "tags", "tags": "a, b ,"})
    shown.order({"run": "one", "action": "archive"})
    row = shown.runs({})[0]
    assert (row["note"], row["tags"], row["archived"]) == ("warm", ["a", "b"], True)
    shown.order({"run": "one", "action": "unarchive"})
    assert not shown.runs({})[0]["archived"] and shown.runs({})[0]["note"] == "warm"
    shown.order({"run": "one", "action": "delete"})
    assert shown.runs({}) == [] and shown.manager.deleted() == ["one"]
    shown.order({"run": "one", "action": "restore"})
    with open_store(shown.root / "one") as store:
        assert store.metrics()
    for words, said in (
        ({"run": "one", "action": "stop"}, "only a running run"),
        ({"run": "two", "action": "delete"}, "there is no run"),
        ({"run": "../one", "action": "restore"}, "no run '../one' in the bin"),
        ({"run": "one", "action": "fly"}, "there is no order"),
    ):
        with pytest.raises(ValueError, match=said):
            shown.order(words)


def test_a_read_only_dashboard_takes_no_orders(shown: Api) -> None:
    closed = Api(shown.root, read_only=True)
    for action in ("note", "delete", "start", "stop", "restore"):
        with pytest.raises(ValueError, match="read-only"):
            closed.order({"run": "one", "action": action})
    assert json.loads(closed.ask("queue", {}) or b"")["read_only"] is True


@pytest.mark.slow
def test_two_thousand_runs_are_listed_within_a_second(shown: Api) -> None:
    """After they were read once; a run is one store, here linked 2,000 times."""
    store = shown.root / "one" / "store.sqlite"
    for i in range(2000):
        (shown.root / f"r{i}").mkdir()
        os.link(store, shown.root / f"r{i}" / "store.sqlite")
    assert len(shown.runs({})) == 2001
    begin = time.perf_counter()
    assert len(shown.runs({})) == 2001
    assert time.perf_counter() - begin < 1.0


@pytest.mark.slow
def test_a_run_is_started_finished_and_continued_from_the_page(tmp_path: Path) -> None:
    shown = Api(tmp_path / "runs")
    options = json.dumps({"steps": 1, "prompts": 2, "n": 2, "eval_tasks": 0, "max_new_tokens": 4, "name": "mine"})
    shown.order({"action": "start", "method": "grpo", "device": "cpu", "options": options})
    assert wait(shown.manager, 200) == {"mine": "done"}, shown.manager.log("mine")
    assert shown.runs({})[0]["step"] == 1
    shown.order({"run": "mine", "action": "proceed", "steps": "2", "device": "cpu"})
    wait(shown.manager, 200)
    assert shown.runs({})[0]["step"] == 2, shown.manager.log("mine")
