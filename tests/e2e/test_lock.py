"""A run folder has one writer: two real processes, a killed holder, a folder that goes away."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from guards import guards
from runs import function, go, halted_after, same_run

import burnish
from burnish.checkpoint.diff import differences
from burnish.config.options import configure
from burnish.core.loop import Report
from burnish.methods.table import find
from burnish.run.folder import Folder
from burnish.run.lock import DRIVER, NAME, RUN, TRAINER, RunLock, holder
from burnish.run.train import Observer
from burnish.util.files import whole_directory

pytestmark = guards("run/lock.py")

HOLD = """
import sys, time
from pathlib import Path
from burnish.run.lock import RunLock
lock = RunLock.take(Path(sys.argv[1]))
print("held", flush=True)
time.sleep(120)
"""


def environment() -> dict[str, str]:
    source = str(Path(burnish.__file__).parent.parent)
    path = os.pathsep.join([source, *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *words], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


WAITING = """
import hashlib, os, time
from pathlib import Path

def reward(completions):  # a coin; waits for as long as the file "wait" is there
    while os.path.exists(Path(__file__).parent / "wait"):
        time.sleep(0.01)
    return [float(hashlib.md5(text.encode()).digest()[0] % 2) for text in completions]
"""


@pytest.fixture(scope="module")
def straight(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An undisturbed run of five steps, whose reward waits while there is a file `wait` next to the run."""
    out = tmp_path_factory.mktemp("straight") / "run"
    reward = function(out.parent / "reward.py", WAITING, "reward")
    go("grpo", small_model, out, steps=5, reward=reward)
    return out


def wait_for(what: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_of_two_resumes_one_goes_on_and_the_other_says_who_has_it(straight: Path, tmp_path: Path) -> None:
    """Two real processes at the same time; the winner is held in its first step until the other has ended."""
    run = halted_after(2, straight, tmp_path / "run")
    wait = straight.parent / "wait"
    wait.touch()
    both = [start("-m", "burnish.cli", "train", "--resume", str(run), "--quiet") for _ in range(2)]
    try:
        wait_for(lambda: any(process.poll() is not None for process in both))
    finally:
        wait.unlink()
    ended = [(process.communicate(timeout=120), process.returncode) for process in both]
    (_, won), (said, lost) = sorted(((err, code) for (_, err), code in ended), key=lambda pair: pair[1])
    assert (won, lost) == (0, 2), ended
    winner = next(process.pid for process in both if process.returncode == 0)
    assert said.count("\n") == 1 and "Traceback" not in said
    assert f"the run folder {run} is being written by process {winner} on" in said and "--resume" in said
    assert not differences(straight, run)
    same_run(straight, run)
    assert not (run / NAME).exists()


def test_a_killed_holder_holds_nothing(straight: Path, tmp_path: Path) -> None:
    run = halted_after(4, straight, tmp_path / "run")
    holding = start("-c", HOLD, str(run))
    try:
        assert holding.stdout is not None and holding.stdout.readline() == "held\n"
        assert holder(run)["pid"] == holding.pid
        with pytest.raises(
            ValueError, match=rf"is being written by process {holding.pid} on .* since \d{{4}}-.*one writer"
        ):
            burnish.resume(run)
    finally:
        holding.send_signal(signal.SIGKILL)
        holding.communicate(timeout=30)
    assert (run / NAME).exists(), "the file stays, and means nothing"
    burnish.resume(run)
    assert not differences(straight, run)


def test_two_threads_of_one_process_are_two_writers(tmp_path: Path) -> None:
    with RunLock.take(tmp_path) as lock:
        with pytest.raises(ValueError, match="is being written by this process already"):
            RunLock.take(tmp_path)
        lock.confirm()
    RunLock.take(tmp_path).release()
    assert not list(tmp_path.iterdir())


def test_a_lock_that_was_lost_by_closing_its_file_is_taken_again(tmp_path: Path) -> None:
    """Reading the file in the holder's own process drops a POSIX lock: the next step has it again."""
    lock = RunLock.take(tmp_path)
    (tmp_path / NAME).read_bytes()
    lock.confirm()
    other = start("-c", HOLD, str(tmp_path))
    assert "is being written by process" in other.communicate(timeout=60)[1]
    (tmp_path / NAME).read_bytes()
    taken = start("-c", HOLD, str(tmp_path))
    try:
        assert taken.stdout is not None and taken.stdout.readline() == "held\n"
        with pytest.raises(ValueError, match=f"is being written by process {taken.pid}"):
            lock.confirm()
    finally:
        taken.kill()
        taken.communicate(timeout=30)


def test_a_lock_file_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    with RunLock.take(tmp_path) as lock:
        (tmp_path / NAME).unlink()
        lock.confirm()
        assert json.loads((tmp_path / NAME).read_text())["pid"] == os.getpid()


def test_a_forked_child_neither_holds_nor_releases(tmp_path: Path) -> None:
    lock = RunLock.take(tmp_path)
    child = os.fork()
    if not child:
        lock.confirm()
        lock.release()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert (tmp_path / NAME).exists()
    other = start("-c", HOLD, str(tmp_path))
    assert "is being written by process" in other.communicate(timeout=60)[1]
    lock.release()


def test_a_driver_and_its_trainer_share_a_folder_that_nobody_else_gets(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from burnish.run import lock as l; l.TRAINER_SECONDS = 0.3\n"
    code += "l.RunLock.take(Path(sys.argv[1]), getattr(l, sys.argv[2])); print('held')\n"

    def tried(part: str) -> bool:
        return start("-c", code, str(tmp_path), part).communicate(timeout=60)[0] == "held\n"

    driver = RunLock.take(tmp_path, DRIVER)
    assert tried("TRAINER") and not tried("DRIVER") and not tried("RUN")
    driver.release()
    trainer = RunLock.take(tmp_path, TRAINER)  # of a driver that was killed
    assert not tried("TRAINER") and not tried("DRIVER") and not tried("RUN")
    trainer.release()
    assert tried("RUN") and RUN == (0, 2)


def test_odd_things_in_the_place_of_the_lock(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(ValueError, match=r"run\.lock is not a regular file"):
        RunLock.take(tmp_path)
    (tmp_path / NAME).unlink()
    (tmp_path / NAME).mkdir()
    with pytest.raises(ValueError, match=r"cannot lock the run folder .* \(Is a directory\)"):
        RunLock.take(tmp_path)


# ----------------------------------------------------------------------------------------------- folders that go away


class After(Observer):
    """Does something after the second step."""

    def __init__(self, act: Any) -> None:
        self.act = act

    def stepped(self, report: Report, heldout: dict[str, float], seconds: float) -> None:
        if report.clock.step == 1:
            self.act()


@pytest.mark.parametrize("how", ["deleted", "moved", "replaced"])
def test_a_folder_that_goes_away_ends_the_run(how: str, small_model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"

    def act() -> None:
        if how == "deleted":
            shutil.rmtree(run)
            return
        run.rename(tmp_path / "elsewhere")
        if how == "replaced":
            run.mkdir()

    with pytest.raises(
        ValueError, match=r"run was deleted, moved or replaced while .* use --resume .*, or start"
    ) as caught:
        go("sft", small_model, run, steps=4, save_every=0, observer=After(act))
    assert "\n" not in str(caught.value)
    assert not run.exists() or not list(run.iterdir()), "nothing is written into another folder of that name"


def test_the_command_says_so_and_does_not_return_0(small_model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    words = ("--model", str(small_model), "--task", "sort", "--steps", "100000", "--prompts", "2", "--eval-tasks", "0")
    process = start("-m", "burnish.cli", "train", "sft", *words, "--save-every", "3", "--out", str(run), "--quiet")
    wait_for(lambda: (run / "checkpoints" / "step-000003").is_dir())
    doomed = tmp_path / "doomed"
    run.rename(doomed)
    shutil.rmtree(doomed)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 2 and said.count("\n") == 1 and "Traceback" not in said, said
    assert not run.exists()


def test_a_library_that_creates_parents_does_not_bring_a_deleted_folder_back(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    with (
        pytest.raises(ValueError, match="could not save .* the folder was deleted or moved meanwhile"),
        whole_directory(run / "checkpoints" / "step-000003") as aside,
    ):
        shutil.rmtree(run)
        (aside / "policy").mkdir(parents=True)  # as save_pretrained of transformers and peft does
        (aside / "policy" / "config.json").write_text("{}")
    assert not run.exists() and tmp_path.exists()


def test_a_store_that_was_deleted_or_replaced_ends_the_run(small_model: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(ValueError, match=r"store\.sqlite was deleted or replaced while the run was writing"):
        go("sft", small_model, run, steps=6, save_every=0, observer=After((run / "store.sqlite").unlink))


def test_runs_in_two_threads_do_not_disturb_each_other(small_model: Path, tmp_path: Path) -> None:
    """Different folders: each has a lock of its own."""
    with RunLock.take(tmp_path):
        done = threading.Thread(target=lambda: go("sft", small_model, tmp_path / "run", steps=1))
        done.start()
        done.join(60)
    assert (tmp_path / "run" / "model").is_dir()


class Noon(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: Any = None) -> Noon:
        return cls(2026, 1, 31, 12)


def test_runs_of_one_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("burnish.run.folder.datetime", Noon)
    made = []
    for name in (None, None, None, "mine", "mine", "mine"):
        folder = Folder.create(configure(find("grpo"), "grpo", {"run_name": name}))
        made.append(str(folder.path))
        folder.release()
    dated = ["runs/grpo-add-20260131-120000", "runs/mine-20260131-120000"]
    assert made == [dated[0], f"{dated[0]}-2", f"{dated[0]}-3", "runs/mine", dated[1], f"{dated[1]}-2"]
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / "runs").write_text("mine")
    monkeypatch.chdir(tmp_path / "file")
    with pytest.raises(ValueError, match=r"cannot make the run folder runs \(File exists\); choose another --out"):
        Folder.create(configure(find("grpo"), "grpo", {}))
