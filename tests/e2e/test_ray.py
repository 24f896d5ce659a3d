"""Runs on a real Ray with killed and stopped processes: same result, or a one-sentence error."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from guards import guards
from rich.console import Console
from runs import halted_after

import burnish
from burnish.checkpoint.diff import differences
from burnish.core.loop import Report
from burnish.distributed.ray.audit import audit
from burnish.distributed.ray.cluster import cluster, local_environment
from burnish.distributed.ray.supervisor import SILENCE
from burnish.report.progress import ProgressLines, ProgressScreen
from burnish.run.observed import ObservedRun
from burnish.run.observers import Observer, Observers
from burnish.store.reader import open_store

pytestmark = guards("distributed", "run", "report", "core/loop.py", "core/sample_ledger.py")
COIN = Path(__file__).with_name("coin.py")


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """One Ray for all tests of this file, as burnish starts it."""
    with cluster(None, 24) as found:
        yield found


class Injecting(Observer):
    """Does something to a process of the run when a step is done. `hit` holds when and what."""

    def __init__(self, folder: Path, plan: dict[int, Callable[[Injecting], None]]) -> None:
        self.folder, self.plan = folder, dict(plan)
        self.said: list[str] = []
        self.hit: list[tuple[float, str]] = []

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        self.plan.pop(report.clock.step, lambda _: None)(self)

    def warned(self, said: str) -> None:
        self.said.append(said)


def strike(role: str, number: signal.Signals) -> Callable[[Injecting], None]:
    """Sends a signal to the last actor of a role that came to work, once every place is filled again."""

    def act(injecting: Injecting) -> None:
        with open_store(injecting.folder) as store:
            events = store.events()
        gone = {event["text"].split()[0] for event in events if event["kind"] == "lost"}
        placed = [re.match(r"(\S+) is process (\d+)", e["text"]) for e in events if e["kind"] == "placed"]
        names = [
            (found[1], int(found[2]))
            for found in placed
            if found and found[1].startswith(role) and found[1] not in gone
        ]
        name, pid = names[0]
        injecting.hit.append((time.time(), name))
        os.kill(pid, number)

    return act


def train(folder: Path, model: Path, observer: Observer | None = None, **more: Any) -> Any:
    options: dict[str, Any] = {
        "model": str(model),
        "task": "sort",
        "reward": f"{COIN}:coin",
        "steps": 8,
        "prompts": 4,
        "n": 4,
        "max_new_tokens": 10,
        "eval_tasks": 4,
        "eval_every": 4,
        "save_every": 2,
        "lr": 1e-3,
        "on": "ray",
        "samplers": 2,
        "graders": 1,
        "unit": 1,
        "lag": 1,
        "out": str(folder),
    }
    return burnish.train("grpo", observer=observer, **{**options, **more})


@pytest.fixture(scope="module")
def straight(ray: Any, small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("straight") / "run"
    said, drawn = (Console(file=StringIO(), width=120, force_terminal=terminal) for terminal in (False, True))
    seen: list[ObservedRun] = []
    with ProgressLines(said) as lines, ProgressScreen(drawn) as screen:
        train(folder, small_model, Observers(lines, screen), callbacks=[Following(seen)])
    for console, name in ((said, "lines"), (drawn, "screen")):
        assert isinstance(console.file, StringIO)
        folder.with_name(name).write_text(console.file.getvalue())
    assert len(seen) == 1 and seen[0].best.last is not None and seen[0].best.last.step == 4
    return folder


class Following:
    """A user's callback, which reads the run."""

    def __init__(self, seen: list[ObservedRun]) -> None:
        self.seen = seen

    def on_start(self, run: ObservedRun) -> None:
        self.seen.append(run)


@pytest.mark.always
def test_both_displays_follow_a_run_on_ray(straight: Path) -> None:
    """What they read of the run is there, from the header to the next commands."""
    lines, screen = (straight.with_name(name).read_text() for name in ("lines", "screen"))
    assert re.search(r"^reward: coin@\w{10}$", lines, re.M), lines
    assert "eval:   4 held-out tasks" in lines and "before: held-out" in lines
    assert re.search(r"^step 4/8: reward .*held-out ", lines, re.M), lines
    assert f"next:   burnish chat {straight / 'model'}" in lines
    assert "step 8/8" in screen and "burnish chat" in screen and "The first held-out tasks" in screen


def test_a_run_that_nobody_disturbs(straight: Path) -> None:
    found = audit(straight)
    assert not found.wrong and found.learned == found.samples == 8 * 4 * 4 and found.stalest == 1
    with open_store(straight) as store:
        metrics = store.metrics()
        assert store.state() == "finished"
    assert [m["staleness"] for m in metrics[:3]] == [0, 1, 1]
    probed = [m["step"] for m in metrics if "mismatch/probe" in m]
    assert probed == [1, 3, 4, 5, 6, 7, 8], "the proof is had after every publish, and noted where it is first used"
    assert all(m.get("mismatch/probe", 0.0) == 0.0 for m in metrics)


KILL, STOP = signal.SIGKILL, signal.SIGSTOP


@pytest.mark.parametrize(
    "faults",
    [
        {1: ("sampler", KILL), 3: ("grader", STOP), 5: ("trainer", KILL)},
        pytest.param({2: ("trainer", STOP), 4: ("sampler", STOP), 6: ("grader", KILL)}, marks=pytest.mark.slow),
    ],
    ids=["killed", "stopped"],
)
def test_whoever_is_lost_the_run_is_the_same(
    faults: dict[int, tuple[str, signal.Signals]], straight: Path, small_model: Path, tmp_path: Path
) -> None:
    """Two runs, one of them disturbed in the middle: metrics, replies, evaluations, checkpoints and weights, bit for
    bit.
    """
    observer = Injecting(tmp_path / "run", {step: strike(*fault) for step, fault in faults.items()})
    train(tmp_path / "run", small_model, observer)
    assert not differences(straight, tmp_path / "run")
    assert not audit(tmp_path / "run").wrong
    assert len(observer.hit) == len(faults)
    with open_store(tmp_path / "run") as store:
        events = store.events()
    for when, name in observer.hit:
        noticed = next(e["time"] for e in events if e["kind"] == "lost" and e["text"].startswith(f"{name} "))
        assert 0 <= noticed - when <= SILENCE + 1.0, f"{name} was missed only after {noticed - when:.1f} s"
        assert any(name in said for said in observer.said)
    assert any(event["kind"] == "replaced" for event in events)


@pytest.mark.slow
def test_free_order_loses_and_repeats_nothing(ray: Any, small_model: Path, tmp_path: Path) -> None:
    observer = Injecting(tmp_path / "run", {2: strike("sampler", signal.SIGKILL)})
    train(tmp_path / "run", small_model, observer, order="free", lag=2)
    found = audit(tmp_path / "run")
    assert not found.wrong and found.learned == found.samples == 8 * 4 * 4 and found.stalest <= 2
    with open_store(tmp_path / "run") as store:
        asked = store.sql("SELECT sum(length) AS n FROM ledger")[0]["n"]
        assert sum(m["sampled_tokens"] for m in store.metrics()) == asked


@pytest.mark.slow
def test_samplers_may_have_engines_of_their_own(straight: Path, small_model: Path, tmp_path: Path) -> None:
    """The same run, bit for bit, with a sampler killed; its engine goes with it."""
    observer = Injecting(tmp_path / "run", {3: strike("sampler", KILL)})
    train(tmp_path / "run", small_model, observer, engine="process", recover_within=120.0)
    named = {found.split(": ")[-1] for found in differences(straight, tmp_path / "run")}
    assert named <= {"step.json differ"}, "checkpoints name a run of other options; all else is the same"
    assert not audit(tmp_path / "run").wrong and len(observer.hit) == 1


def test_a_run_is_resumed_exactly_after_its_driver_is_gone(straight: Path, small_model: Path, tmp_path: Path) -> None:
    halted = halted_after(6, straight, tmp_path / "run")
    burnish.resume(halted)
    assert not differences(straight, halted)


@pytest.mark.slow
def test_too_many_losses_end_with_a_sentence(ray: Any, small_model: Path, tmp_path: Path) -> None:
    observer = Injecting(tmp_path / "run", {1: strike("sampler", signal.SIGKILL)})
    with pytest.raises(
        ValueError, match=r"1 actors were lost, more than --replacements 0; the last: sampler-\d was lost: .*it was "
    ):
        train(tmp_path / "run", small_model, observer, replacements=0, spares=0)


@pytest.mark.slow
def test_a_role_that_nobody_fills_ends_with_a_sentence(ray: Any, small_model: Path, tmp_path: Path) -> None:
    """No spare, and no time for another to start: the role, the wait and the last thing it did."""
    observer = Injecting(tmp_path / "run", {1: strike("grader", signal.SIGKILL)})
    with pytest.raises(
        ValueError, match=r"there has been no grader for .* \(--recover-within 0.2\): grader-\d was lost"
    ):
        train(tmp_path / "run", small_model, observer, spares=0, recover_within=0.2)


@pytest.mark.slow
def test_what_a_grader_raises_is_the_runs_own_error(ray: Any, small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(completions):\n    raise KeyError('no such column')\n")
    with pytest.raises(ValueError, match="no such column"):
        train(tmp_path / "run", small_model, reward=f"{tmp_path / 'bad.py'}:f", eval_tasks=0)
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_ray_that_runs_is_joined_with_its_token_and_left_running(ray: Any, small_model: Path, tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "burnish.cli",
        "train",
        "grpo",
        "--on",
        "ray",
        "--quiet",
        "--steps",
        "2",
        "--prompts",
        "2",
    ]
    words += [
        "--model",
        str(small_model),
        "--task",
        "sort",
        "--max-new-tokens",
        "6",
        "--eval-tasks",
        "0",
        "--spares",
        "0",
    ]
    words += ["--ray-address", ray.get_runtime_context().gcs_address, "--out", str(tmp_path / "run")]
    secret = {name: value for name, value in local_environment().items() if name.startswith("RAY_AUTH")}
    joined = subprocess.run(words, env={**os.environ, **secret}, capture_output=True, text=True, timeout=300)
    assert joined.returncode == 0, joined.stderr[-2000:]
    assert not audit(tmp_path / "run").wrong and "step 2/2" in joined.stdout
    assert ray.cluster_resources()["CPU"] == 24, "it is still there"


def test_ray_listens_on_this_machine_alone(ray: Any) -> None:
    """Every listening socket of Ray's processes is on a loopback address, and no dashboard is among them."""
    inodes = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes()
            if b"ray/core/src" in words or words.startswith(b"ray::") or int(process.name) == os.getpid():
                inodes |= {os.readlink(link) for link in (process / "fd").iterdir()}
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and f"socket:[{fields[9]}]" in inodes:
                listening.append(fields[1].split(":")[0])
    assert listening
    assert all(address.endswith("0100007F") or address == "0" * 24 + "01000000" for address in listening), listening
