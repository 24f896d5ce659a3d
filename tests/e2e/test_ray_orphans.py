"""A Ray cluster that burnish started ends with its driver, even if that is killed; other processes survive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from guards import guards

from burnish.distributed.ray import watchdog

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the watchdog reads /proc"),
    guards("distributed/ray"),
]

# A process that behaves as a driver with a Ray does: a child that runs a file below the folder `ray`, a grandchild in a
# session of its own, and another child that is not Ray's.
DRIVER = """
import subprocess, sys, time
from pathlib import Path
from burnish.distributed.ray.watchdog import watched

folder = Path(sys.argv[1]) / "ray"
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
with watched(str(folder)):
    ray = subprocess.Popen([sys.executable, str(folder / "raylet.py")], stdout=subprocess.PIPE, text=True)
    print(other.pid, ray.pid, ray.stdout.readline().strip(), flush=True)
    time.sleep(float(sys.argv[2]))
print("done", flush=True)
time.sleep(600)
"""
RAYLET = """
import subprocess, sys, time
agent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(agent.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("ending", ["SIGKILL", "SIGTERM", pytest.param("orderly", marks=pytest.mark.slow)])
def test_what_ray_leaves_is_ended_and_nothing_else(ending: str, tmp_path: Path) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "raylet.py").write_text(RAYLET)
    seconds = "1" if ending == "orderly" else "600"
    words = [sys.executable, "-c", DRIVER, str(tmp_path), seconds]
    driver = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    other, ray, agent = (int(pid) for pid in driver.stdout.readline().split())
    try:
        assert {other, ray, agent} <= watchdog._table().keys()
        if ending != "orderly":
            driver.send_signal(getattr(signal, ending))
        _soon(lambda: not {ray, agent} & watchdog._table().keys())
        assert other in watchdog._table(), "a child that is not Ray's is left alone"
    finally:
        driver.kill()
        driver.wait()
        for pid in (other, ray, agent):
            if pid in watchdog._table():
                os.kill(pid, signal.SIGKILL)


def test_processes_of_a_driver_that_died_at_once_are_found_by_their_mark(tmp_path: Path) -> None:
    """The driver is gone before the watchdog has listed anything: its children have another parent by then."""
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "raylet.py").write_text(RAYLET)
    words = [sys.executable, str(tmp_path / "ray" / "raylet.py")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=os.environ | {watchdog.MARK: "mine"}) as ray:
        assert ray.stdout is not None
        agent = int(ray.stdout.readline())
        try:
            assert set(watchdog.marked_processes("mine", str(tmp_path / "ray"))) == {ray.pid, agent}
            assert not watchdog.marked_processes("min", str(tmp_path / "ray"))
            assert not watchdog.marked_processes("mine", str(tmp_path / "other"))
        finally:
            ray.kill()
            os.kill(agent, signal.SIGKILL)


def test_a_pid_that_another_process_has_now_is_not_killed() -> None:
    mine = os.getpid()
    started = watchdog.descendants(mine)[mine]
    assert watchdog.alive({mine: started}) == [mine]
    assert watchdog.alive({mine: started + "0"}) == []


KILLED = """
import os, time
from burnish.distributed.ray.cluster import cluster

with cluster(None, 2) as ray:
    @ray.remote
    class Worker:
        def pid(self):
            return os.getpid()
    worker = Worker.remote()
    print(ray.get(worker.pid.remote()), flush=True)
    time.sleep(600)
"""


def test_a_killed_driver_leaves_no_process_of_ray() -> None:
    """Without the watchdog, Ray's dashboard and runtime-environment agents are there for a minute more."""
    import ray

    folder = os.path.dirname(ray.__file__)
    driver = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert driver.stdout is not None
    worker = int(driver.stdout.readline())
    theirs = watchdog.ray_processes(driver.pid, folder)
    assert worker in theirs and len(theirs) >= 5
    driver.kill()
    driver.wait()
    _soon(lambda: not watchdog.alive(theirs), seconds=10.0)


def _soon(done: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.05)
