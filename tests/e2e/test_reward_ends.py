"""How a reward function and its run end: sys.exit is a failure, and nothing that it started outlives it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from guards import guards
from runs import function, go

from burnish.core.types import Verdict
from burnish.reward_functions.call import call_reward
from burnish.reward_functions.timed import TimedReward
from burnish.tasks.table import source
from burnish.tasks.task_set import rewarded

pytestmark = guards("sandbox", "verifiers", "reward_functions")

STARTS = """
import os, pathlib, subprocess, time

def f(completions):
    here = pathlib.Path(__file__).parent
    for name in ("child", "own-session"):
        child = subprocess.Popen(["sleep", "600"], start_new_session=name == "own-session")
        (here / f"{name}.tmp").write_text(str(child.pid))
        os.rename(here / f"{name}.tmp", here / name)
    if any("hang" in text for text in completions) or (here / "hang").exists():
        time.sleep(600)
    return [0.0] * len(completions)
"""
EXITS = {
    "exit": ("import sys\ndef f(completions):\n    sys.exit(0)\n", r"reward f called sys.exit\(0\)"),
    "interrupt": ("def f(completions):\n    raise KeyboardInterrupt\n", "raised KeyboardInterrupt"),
    "gone": ("import os\ndef f(completions):\n    os._exit(0)\n", "died during a call"),
    "other": ("class E(BaseException): pass\ndef f(completions):\n    raise E('odd')\n", "reward f raised E: odd"),
    "loading": ("import sys\nsys.exit(0)\n", r"running .* failed \(SystemExit: 0\)"),
    "loading gone": ("import os\nos._exit(0)\n", r"ended \(exit status 0\) while it was loaded"),
}


def alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def wait_for(what: Any, seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while not what():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Path]:
    """A reward file that starts processes; those are ended after the test, whatever came of it."""
    (tmp_path / "reward").mkdir()
    yield tmp_path / "reward" / "r.py"
    for pid in pids(tmp_path / "reward"):
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)


def pids(folder: Path) -> list[int]:
    return [int((folder / name).read_text()) for name in ("child", "own-session") if (folder / name).exists()]


@pytest.mark.parametrize("how", sorted(EXITS))
def test_a_reward_that_ends_the_process_is_a_failure_of_the_run(how: str, small_model: Path, tmp_path: Path) -> None:
    code, why = EXITS[how]
    with pytest.raises(ValueError, match=why):
        go("grpo", small_model, tmp_path / "run", reward=function(tmp_path / "r.py", code, "f"))


def test_the_command_says_so_and_does_not_exit_with_0(small_model: Path, tmp_path: Path) -> None:
    reward = function(tmp_path / "r.py", EXITS["exit"][0], "f")
    asked = ["train", "grpo", "--model", str(small_model), "--out", str(tmp_path / "run"), "--reward", reward]
    asked += ["--steps", "1", "--prompts", "2", "--n", "2", "--max-new-tokens", "4", "--eval-tasks", "0"]
    done = subprocess.run(
        [sys.executable, "-m", "burnish.cli", *asked], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2 and "reward f called sys.exit(0)" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


def test_in_this_process_too() -> None:
    def leaves(completions: list[str]) -> list[float]:
        sys.exit(0)

    with pytest.raises(ValueError, match=r"reward leaves called sys.exit\(0\) at .*; fix the function"):
        call_reward(leaves, ["p"], ["c"], {})
    for workers in (0, 2):
        tasks = rewarded(source("sort"), leaves, workers=workers)
        with pytest.raises(ValueError, match=r"called sys.exit\(0\)"):
            tasks.verdicts([source("sort").task("train", 0)] * 2, ["x", "y"])


@pytest.mark.skipif(sys.platform != "linux", reason="there is no subreaper elsewhere")
def test_what_a_function_started_ends_with_it(started: Path) -> None:
    timed = TimedReward(function(started, STARTS, "f"), 2.0)
    assert timed([""], ["fine"], {}) == [Verdict(0.0, False)]
    first = pids(started.parent)
    assert len(first) == 2 and all(alive(pid) for pid in first), "a function may have processes between its calls"
    (verdict,) = timed([""], ["hang"], {})
    assert verdict.failed
    assert wait_for(lambda: not any(alive(pid) for pid in {*first, *pids(started.parent)}))


@pytest.mark.skipif(sys.platform != "linux", reason="there is no subreaper elsewhere")
@pytest.mark.parametrize("hangs", [False, True])
def test_a_killed_run_leaves_no_process_and_no_file(
    hangs: bool, started: Path, small_model: Path, tmp_path: Path
) -> None:
    reward, temporary = function(started, STARTS, "f"), tmp_path / "temporary"
    temporary.mkdir()
    if hangs:
        (started.parent / "hang").touch()
    asked = ["train", "grpo", "--model", str(small_model), "--out", str(tmp_path / "run"), "--reward", reward]
    asked += ["--steps", "500", "--prompts", "2", "--n", "2", "--max-new-tokens", "4", "--eval-tasks", "0"]
    run = subprocess.Popen(
        [sys.executable, "-m", "burnish.cli", *asked],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TMPDIR": str(temporary)},
        start_new_session=True,
    )
    try:
        assert wait_for(lambda: len(pids(started.parent)) == 2, 120.0)
        below = descendants(run.pid)
    finally:
        run.kill()
        run.wait(10)
    assert len(below) >= 2, "a guard and a worker"
    assert wait_for(lambda: not any(alive(pid) for pid in {*below, *pids(started.parent)}))
    assert not [place.name for place in temporary.iterdir() if "burnish" in place.name]


@pytest.mark.skipif(sys.platform != "linux", reason="there is no subreaper elsewhere")
def test_a_killed_run_leaves_no_verifier(small_model: Path, tmp_path: Path) -> None:
    """Whether the verifier is just starting or already judging."""
    asked = ["train", "grpo", "--model", str(small_model), "--task", "sort"]
    asked += ["--steps", "500", "--prompts", "2", "--n", "2", "--max-new-tokens", "4", "--eval-tasks", "0"]
    for least in (1, 2):
        run = subprocess.Popen(
            [sys.executable, "-m", "burnish.cli", *asked, "--out", str(tmp_path / f"run{least}")],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TMPDIR": str(tmp_path)},
            start_new_session=True,
        )
        try:
            assert wait_for(lambda: len(judging(run.pid)) >= least, 120.0)  # noqa: B023 - waited for here
            below = judging(run.pid)
        finally:
            run.kill()
            run.wait(10)
        assert wait_for(lambda: not any(alive(pid) for pid in below))  # noqa: B023 - waited for here
    assert wait_for(lambda: not list(tmp_path.glob("burnish-*")), 10.0)


def judging(pid: int) -> set[int]:
    """The processes of the verifier below a run."""
    found = set()
    for one in descendants(pid):
        with contextlib.suppress(OSError):
            if b"burnish.verifiers.worker" in Path(f"/proc/{one}/cmdline").read_bytes():
                found.add(one)
    return found


def descendants(pid: int) -> set[int]:
    """All processes below one."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, IndexError, ValueError):
            parents.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
    found, new = set(), [pid]
    while new:
        new = [child for one in new for child in parents.get(one, [])]
        found |= set(new)
    return found
