"""burnish runs, exports, reports, notebook objects, other loggers (--log), and orders to a running run."""

from __future__ import annotations

import csv
import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from guards import guards
from runs import COIN, function, go, same_run, saved

import burnish
from burnish.cli import main
from burnish.commands.report import write
from burnish.report.catalogue import duration, pick, summaries
from burnish.report.definitions import definition
from burnish.run.train import Observer, Result
from burnish.store.control import order
from burnish.store.reader import open_store
from burnish.store.sinks import SINKS, sink_names

pytestmark = guards("store", "report", "run")


@pytest.fixture(scope="module")
def place(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three runs: two seeds of GRPO, and SFT."""
    root = tmp_path_factory.mktemp("many")
    reward = function(root / "r.py", COIN, "coin")
    for seed in (0, 1):
        go(
            "grpo",
            small_model,
            root / "runs" / f"grpo-{seed}",
            reward=reward,
            seed=seed,
            n=4,
            eval_tasks=6,
            eval_every=1,
            steps=3,
        )
    go("sft", small_model, root / "runs" / "deep" / "sft")
    return root


@pytest.fixture
def there(place: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(place)
    return place


def said(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


# ----------------------------------------------------------------------------------------------------- burnish runs


def test_runs_lists_every_run(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "runs")
    for name in ("grpo-0", "grpo-1", "deep/sft", "finished", "sort", "->"):
        assert name in text, name
    rows = json.loads(said(capsys, "runs", "--json"))
    assert {row["name"] for row in rows} == {"grpo-0", "grpo-1", "deep/sft"} and rows[0]["step"] == rows[0]["steps"]
    assert "No runs" in said(capsys, "runs", there / "runs" / "grpo-0" / "model")


def test_runs_that_differ_in_their_seed_alone_are_the_same(place: Path) -> None:
    found = {run.name: run.same for run in summaries(place / "runs")}
    assert found["grpo-0"] == found["grpo-1"] != found["deep/sft"]


def test_runs_show_says_what_a_run_was(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "runs", "show", "grpo-0")
    for word in ("grpo on sort", "seed 0", "3 of 3", "reward", "pg/entropy", "n=4", "torch"):
        assert word in text, word
    assert json.loads(said(capsys, "runs", "show", "deep/sft", "--json"))["config"]["method"] == "sft"


def test_a_run_is_picked_by_path_name_beginning_or_age(there: Path) -> None:
    assert pick("runs/grpo-1") == Path("runs/grpo-1") and pick("grpo-1") == Path("runs/grpo-1")
    assert pick("deep") == Path("runs/deep/sft") and pick("last") == Path("runs/deep/sft")
    with pytest.raises(ValueError, match="begins the names of 2 runs: "):
        pick("grpo")
    with pytest.raises(ValueError, match="there is no run 'nothing'; burnish runs lists those in runs/"):
        pick("nothing")
    assert [duration(s) for s in (3, 200, 7300, 90000 * 3)] == ["3 s", "3 min", "2 h", "3 d"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("runs", "show"), "say which run: burnish runs show RUN"),
        (("runs", "nowhere"), "there is no folder 'nowhere'"),
        (("runs", "fly", "grpo-0"), "cannot 'fly'; it can show, export, pause"),
        (("runs", "export", "grpo-0", "--to", "xls"), "cannot export to 'xls'; the kinds are parquet, jsonl, csv"),
        (("runs", "stop", "grpo-0"), "is finished, so there is nothing to stop"),
        (("report",), "say which run: burnish report RUN"),
        (("ui", "nowhere"), "there is no folder 'nowhere'"),
        (("ui", "--host", "::"), "opens the dashboard on every network at once; name the one address"),
        (("ui", "--token", "short"), "--token must have 16 to 200 letters"),
        (("train", "--log", "paper"), "--log cannot write to 'paper'; it can to tensorboard, wandb, trackio, mlflow"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(
    words: tuple[str, ...], why: str, there: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(words)) == 2
    err = capsys.readouterr().err
    assert why in err and err.count("\n") == 1


def test_exports_hold_what_the_store_holds(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_store("runs/grpo-0") as store:
        metrics, count, first = store.metrics(), store.count(), store.trace(1)
    kinds = ["jsonl", "csv"]
    try:
        import pyarrow.parquet as parquet

        kinds.append("parquet")
    except ImportError:
        parquet = None
    for kind in kinds:
        assert f"{count} rows" in said(capsys, "runs", "export", "grpo-0", "--to", kind, "--out", "exported")
    lines = [json.loads(line) for line in Path("exported/metrics.jsonl").read_text().splitlines()]
    assert lines == metrics
    with Path("exported/traces.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert (
        len(rows) == count and rows[0]["text"] == first["text"] and json.loads(rows[0]["ids"]) == first["tokens"]["ids"]
    )
    if parquet is not None:
        table = parquet.read_table("exported/traces.parquet").to_pylist()
        assert len(table) == count and table[0]["text"] == first["text"] and table[0]["ids"] == first["tokens"]["ids"]
        assert json.loads(table[0]["scores"]) == first["scores"]
        numbers = parquet.read_table("exported/metrics.parquet").to_pylist()
        assert [row["reward"] for row in numbers] == [row["reward"] for row in metrics]


# ---------------------------------------------------------------------------------------------------------- reports


def test_a_report_stands_alone(place: Path, tmp_path: Path) -> None:
    page, text = (path.read_text() for path in write(place / "runs" / "grpo-0", tmp_path))
    for word in (
        "grpo on sort",
        "held-out accuracy",
        "<svg",
        "Policy entropy, nats per token",
        "Where the time goes",
        "method: grpo",
        "Made with burnish",
    ):
        assert word in page, word
    assert not re.search(r"<script|(src|href)=|url\(|@import|https?://(?!www.w3.org)", page)
    assert text.startswith("# grpo on sort") and "| `reward` |" in text and "method: grpo" in text


def test_a_reply_cannot_write_html_into_a_report(small_model: Path, tmp_path: Path) -> None:
    rows = tmp_path / "d.jsonl"
    evil = '<script>alert(1)</script>|x" onload="y'
    rows.write_text("".join(json.dumps({"prompt": f"{evil} {i}", "completion": evil}) + "\n" for i in range(20)))
    go("sft", small_model, tmp_path / "run", task=str(rows))
    page, text = (path.read_text() for path in write(tmp_path / "run"))
    assert "<script>" not in page and "&lt;script&gt;" in page and "<script>" not in text
    with open_store(tmp_path / "run") as store:
        assert "<script>" not in store._repr_html_() and "<script>" not in store.traces()._repr_html_()


def test_the_yaml_in_a_report_repeats_the_run(place: Path, small_model: Path, tmp_path: Path) -> None:
    _, text = (path.read_text() for path in write(place / "runs" / "deep" / "sft", tmp_path))
    (tmp_path / "run.yaml").write_text(text.split("```yaml\n")[1].split("```")[0])
    assert main(["train", str(tmp_path / "run.yaml"), "--out", str(tmp_path / "again"), "--quiet"]) == 0
    same_run(place / "runs" / "deep" / "sft", tmp_path / "again")


def test_a_result_shows_itself_in_a_notebook(small_model: Path, tmp_path: Path) -> None:
    reward = function(tmp_path / "r.py", COIN, "coin")
    result: Result = go("grpo", small_model, tmp_path / "run", reward=reward, n=4, eval_tasks=4)
    card = result._repr_html_()
    assert "<svg" in card and "grpo on sort" in card and "Held-out answers" in card
    rules = card.split("<style>")[1].split("</style>")[0]
    assert not re.search(r"(^|\})\s*(body|h1|h2|table|td|pre|figure)", rules), "a rule reaches beyond our own box"
    assert list(result.plot("reward", "pg/entropy").svg()) == ["reward", "pg/entropy"]
    assert "heldout/accuracy" in result.plot().svg() and "<svg" in result.plot()._repr_html_()
    with pytest.raises(ValueError, match="has no metric 'rewrad'; it has "):
        result.plot("rewrad")
    traces = result.traces(step=1, order="best")
    assert len(traces) == 8 and traces[0]["step"] == 1 and "<table>" in traces._repr_html_()


# ---------------------------------------------------------------------------------------------------- other loggers


def test_a_logger_that_is_not_installed_is_refused_before_anything_starts(tmp_path: Path, small_model: Path) -> None:
    missing = [name for name in SINKS if not _installed(name)]
    if not missing:
        pytest.skip("all of them are installed")
    with pytest.raises(ValueError, match=rf"pip install 'burnish\[{missing[0]}\]'"):
        go("sft", small_model, tmp_path / "run", log=missing[0])
    assert not (tmp_path / "run").exists()


def _installed(name: str) -> bool:
    try:
        sink_names(name)
    except ValueError:
        return False
    return True


def logged(name: str, model: Path, out: Path) -> list[dict[str, Any]]:
    go("sft", model, out, log=name, steps=3)
    with open_store(out) as store:
        assert not [event for event in store.events() if event["level"] != "info"]
        return store.metrics()


@pytest.mark.extras
def test_tensorboard_hears_the_same_numbers(small_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    metrics = logged("tensorboard", small_model, tmp_path / "run")
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard"))
    events.Reload()
    assert {name for name in metrics[0] if name != "step"} <= set(events.Tags()["scalars"])
    assert [(e.step, e.value) for e in events.Scalars("sft/loss")] == [
        (m["step"], pytest.approx(m["sft/loss"])) for m in metrics
    ]
    assert len(events.Scalars("seconds/learn")) == len(events.Scalars("memory_mb")) == 3
    assert all(definition(name) for name in events.Tags()["scalars"])


@pytest.mark.extras
def test_mlflow_hears_the_same_numbers(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow")
    from mlflow.tracking import MlflowClient

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    metrics = logged("mlflow", small_model, tmp_path / "run")
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'run' / 'mlflow.db'}")
    (found,) = client.search_runs([client.get_experiment_by_name("burnish").experiment_id])
    assert found.data.params["method"] == "sft" and found.info.status == "FINISHED"
    history = client.get_metric_history(found.info.run_id, "sft/loss")
    assert [(one.step, one.value) for one in history] == [(m["step"], m["sft/loss"]) for m in metrics]


@pytest.mark.extras
def test_trackio_hears_the_same_numbers(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    pytest.importorskip("trackio")
    from trackio.sqlite_storage import SQLiteStorage

    metrics = logged("trackio", small_model, tmp_path / "run")
    rows = SQLiteStorage.get_logs("burnish", "run")
    assert [(row["step"], row["sft/loss"]) for row in rows] == [
        (m["step"], pytest.approx(m["sft/loss"])) for m in metrics
    ]


def log_records(data: bytes) -> list[bytes]:
    """The records of a LevelDB log after wandb's 7-byte header: blocks of 32 kB, records of crc, length, kind, data."""
    found, at, held = [], 7, b""
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        length, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        held += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # whole, or the last part of one
            found.append(held)
            held = b""
    return found


@pytest.mark.extras
def test_wandb_hears_the_same_numbers_offline(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    pytest.importorskip("wandb")
    from wandb.proto import wandb_internal_pb2

    metrics = logged("wandb", small_model, tmp_path / "run")
    (file,) = (tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb")
    found = []
    for raw in log_records(file.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(raw)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            found.append({"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items})
    assert [(row["_step"], row["sft/loss"]) for row in found] == [(m["step"], m["sft/loss"]) for m in metrics]


# ----------------------------------------------------------------------------------------------------------- orders


class Ordering(Observer):
    """Send orders through the store at the end of given steps, and record the orders that the run receives."""

    def __init__(self, folder: Path, orders: dict[int, str]) -> None:
        self.folder, self.orders = folder, orders
        self.heard: list[str] = []
        self.checkpoints: list[str] = []

    def stepped(self, report: Any, heldout: dict[str, float], seconds: float) -> None:
        if report.clock.step in self.orders:
            order(self.folder, self.orders[report.clock.step])

    def ordered(self, action: str) -> None:
        self.heard.append(action)

    def saved(self, path: Path) -> None:
        self.checkpoints.append(path.name)


def test_a_run_that_is_told_to_stop_saves_and_resumes_exactly(small_model: Path, tmp_path: Path) -> None:
    straight, halted = tmp_path / "straight", tmp_path / "halted"
    same: dict[str, Any] = {"steps": 5, "save_every": 9}
    go("sft", small_model, straight, **same)
    watching = Ordering(halted, {0: "checkpoint", 2: "stop"})
    result = go("sft", small_model, halted, **same, observer=watching)
    assert (
        result.stopped
        and watching.heard == ["checkpoint", "stop"]
        and watching.checkpoints == ["step-000001", "step-000003"]
    )
    with open_store(halted) as store:
        assert store.state() == "stopped"
        kinds = [event["kind"] for event in store.events()]  # the time of the event of a checkpoint depends on the disk
        assert [kind for kind in kinds if kind != "saved"] == ["started", "checkpoint", "stop", "stopped"]
        assert kinds.count("saved") == 2
    assert not burnish.resume(halted).stopped
    assert saved(halted)[-1] == "step-000005"
    same_run(straight, halted)


def test_a_paused_run_waits_until_it_is_told_to_go_on(small_model: Path, tmp_path: Path) -> None:
    folder, seen = tmp_path / "run", []

    def later() -> None:
        for _ in range(200):
            time.sleep(0.05)
            with open_store(folder) as store:
                if store.info().get("paused"):
                    break
        time.sleep(0.5)
        with open_store(folder) as store:
            seen.append((store.state(), len(store.metrics()), summaries(folder)[0].paused))
        order(folder, "checkpoint")  # a paused run saves, and stays paused
        time.sleep(0.8)
        with open_store(folder) as store:
            seen.append((store.state(), len(store.metrics()), summaries(folder)[0].paused))
        order(folder, "resume")

    class Pausing(Ordering):
        def stepped(self, report: Any, heldout: dict[str, float], seconds: float) -> None:
            super().stepped(report, heldout, seconds)
            if report.clock.step == 0:
                threading.Thread(target=later).start()

    watching = Pausing(folder, {0: "pause"})
    result = go("sft", small_model, folder, steps=3, save_every=9, observer=watching)
    assert seen == [("running", 1, True)] * 2 and watching.heard == ["pause", "checkpoint", "resume"]
    assert watching.checkpoints == ["step-000001", "step-000003"] and len(result.metrics) == 3


def test_a_run_that_fails_says_so(small_model: Path, tmp_path: Path) -> None:
    class Failing(Observer):
        def stepped(self, report: Any, heldout: dict[str, float], seconds: float) -> None:
            if report.clock.step == 1:
                raise RuntimeError("the roof fell in")

    with pytest.raises(RuntimeError):
        go("sft", small_model, tmp_path / "run", steps=3, observer=Failing())
    with open_store(tmp_path / "run") as store:
        assert store.state() == "failed" and len(store.metrics()) == 2
        assert store.events()[-1]["text"] == "RuntimeError: the roof fell in" and store.events()[-1]["level"] == "error"
