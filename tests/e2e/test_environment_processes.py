"""Environments of a file, in processes of their own: what they do costs at most their own episode."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import burnish
from burnish.envs.guarded import Failure, GuardedEnv
from burnish.envs.process import Kept, Remote, RemoteEnv
from burnish.envs.protocol import Outcome
from burnish.tasks.environment import EnvSource
from burnish.tasks.resolve import resolve_task
from burnish.zoo.pangu_agent import Intrinsic

FILE = '''
import asyncio, datetime, os, re, random, subprocess, sys, time

loaded = os.getpid()


class Counts:
    """Counts its steps.

    And more."""

    seats = ("first", "second")

    @staticmethod
    def tasks(split):
        rows = [{"n": n, "pair": (n, 2), 3: None} for n in range(3)]
        return rows + [datetime.date(2020, 1, 2)] if split == "train" else rows[:1]

    def __init__(self, start=0):
        self.steps, self.start = 0, start

    def reset(self, task, seed, seated=False):
        self.task, self.seed, self.steps = task, seed, self.start
        return f"{type(task).__name__} {task} {seed} {seated}"

    def step(self, action):
        if action == "hang": re.match("(a+)+$", "a" * 60 + "b")  # holds the lock of the interpreter
        if action == "sleep": time.sleep(600)
        if action == "exit": os._exit(0)
        if action == "leave": sys.exit(3)
        if action == "segfault": os.kill(os.getpid(), 11)
        if action == "raise": raise RuntimeError("no such door")
        if action == "deep":
            found = []
            for _ in range(5000): found = [found]
            return [{"role": "tool", "content": "x", "more": found}], 1.0, False
        if action == "long": return "x" * 20_000_000, 1.0, False
        if action == "nan": return "x", float("nan"), False
        if action == "object": return object(), 1.0, False
        if action == "print": print("said"); print("{}")
        if action == "child":
            subprocess.Popen(["sleep", "600"])
            return str(subprocess.Popen(["sleep", "600"]).pid), 0.0, False
        if action == "subprocess": return str(subprocess.run(["false"]).returncode), 0.0, False
        if action == "random": return str(random.random()), 0.0, False
        if action == "pid": return f"{os.getpid()} {loaded}", 0.0, False
        self.steps += 1
        info = {"metrics": {"a": 1, "b": float("inf")}, "valid": action != "no", "outcome": "won", "self": self}
        return [{"role": "tool", "name": "t", "content": f"{self.steps}"}], 0.5, self.steps == 9, False, info

    def key(self):
        return self.steps

    def fork(self):
        found = Counts()
        found.task, found.seed, found.steps = self.task, self.seed, self.steps
        return found

    def expert(self):
        return "go"

    def tools(self):
        return [{"type": "function", "function": {"name": "t"}}]

    def seat(self):
        return "first"

    def close(self):
        if self.steps == 7: time.sleep(600)


class Late:
    async def reset(self):
        await asyncio.sleep(0.01)
        return "begin"

    async def step(self, action):
        await asyncio.sleep(0.01)
        return "end", 1.0, True


class Bare:
    """Has nothing more."""

    key = "red"

    def reset(self):
        return "begin"

    def step(self, action):
        return "end", 1.0, True


def make(**options):
    return Counts(**options)


class Stuck(Bare):
    def reset(self):
        time.sleep(600)


class Lost(Bare):
    @staticmethod
    def tasks(split):
        raise FileNotFoundError("rows.json")


class Ends(Bare):
    @staticmethod
    def tasks(split):
        os._exit(0)
'''


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("env") / "mine.py"
    path.write_text(FILE)
    return path


@pytest.fixture(scope="module")
def counts(file: Path) -> Remote:
    return Remote(f"{file}:Counts")


def begun(make: Callable[[], Any], seconds: float = 30.0, task: Any = None) -> GuardedEnv:
    env = GuardedEnv(make, seconds)
    env.observed(env.begin_reset(task, 7))
    return env


def step(env: GuardedEnv, action: str) -> Outcome:
    return env.outcome(env.begin_step(action))


def gone(pid: int) -> bool:
    for _ in range(100):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_it_is_as_in_the_process_of_the_run(file: Path, counts: Remote) -> None:
    plain = resolve_task(f"{file}:Counts", env_process=False)
    found = EnvSource(counts, "Counts")
    assert isinstance(plain, EnvSource) and not isinstance(plain.factory, Remote)
    assert (found.summary, found.gives, found.size("train")) == (plain.summary, plain.gives, 4)
    for index in range(3):
        one, other = found.task("train", index), plain.task("train", index)
        assert (one.prompt, one.key) == (other.prompt, other.key)
        drop = {"env"}
        assert {k: v for k, v in one.given.items() if k not in drop} == {
            k: v for k, v in other.given.items() if k not in drop
        }
    envs = [begun(source.factory, task=source.task("train", 0).given["task"]) for source in (found, plain)]
    for action in ("go", "no", "go"):
        one, other = (step(env, action) for env in envs)
        assert (one.observation, one.reward, one.over, one.valid, one.metrics()) == (
            other.observation, other.reward, other.over, other.valid, other.metrics()
        )  # fmt: skip
        assert one.info["outcome"] == "won"
    for ask in (GuardedEnv.key, GuardedEnv.expert, GuardedEnv.seat, GuardedEnv.seats, GuardedEnv.tools):
        assert ask(envs[0]) == ask(envs[1])  # type: ignore[operator]


def test_a_row_that_json_cannot_hold_stays_in_the_process(counts: Remote) -> None:
    task = EnvSource(counts).task("train", 3)
    assert task.prompt[0]["content"].startswith("date 2020-01-02") and isinstance(task.given["task"], Kept)  # type: ignore[index]


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("hang", r"step\(\) of the environment had not answered after 0.5 s, at __init__.py:\d+ in match"),
        ("sleep", r"step\(\) of the environment had not answered after 0.5 s, at mine.py:\d+ in step"),
        ("exit", r"the process of the environment ended during step\(\)"),
        ("segfault", r"the process of the environment ended during step\(\)"),
        ("leave", r"step\(\) of the environment raised SystemExit: 3"),
        ("raise", r"step\(\) of the environment raised RuntimeError: no such door"),
        ("deep", r"step\(\) of the environment: it is nested too deeply"),
        ("long", r"step\(\) of the environment gave what cannot be read: it has more than"),
        ("nan", r"step\(\) of the environment: a step's reward is 'nan'"),
        ("object", r"step\(\) of the environment: an observation is '<object"),
    ],
)
def test_what_a_step_does_costs_its_own_episode(action: str, why: str, counts: Remote) -> None:
    other, env = begun(counts), begun(counts, 0.5 if action in ("hang", "sleep") else 30.0)
    pid = int(step(env, "pid").observation.split()[0])  # type: ignore[union-attr]
    with pytest.raises(Failure, match=why):
        step(env, action)
    if action in ("hang", "sleep", "exit", "segfault", "long"):
        assert gone(pid)
    else:
        assert step(env, "pid").observation.startswith(f"{pid} ")  # type: ignore[union-attr]
    assert step(other, "go").reward == 0.5
    env.close()
    other.close()


def test_what_it_has_started_ends_with_it_and_it_may_start_and_print(counts: Remote) -> None:
    env = begun(counts, 2.0)
    child = int(step(env, "child").observation)  # type: ignore[arg-type]
    assert step(env, "subprocess").observation == "1" and step(env, "print").reward == 0.5
    with pytest.raises(Failure, match="had not answered after 2 s"):
        step(env, "sleep")
    assert gone(child)


def test_copies_go_their_own_ways_in_processes_of_their_own(counts: Remote) -> None:
    env = begun(counts)
    step(env, "go")
    env.keep()
    step(env, "go")
    now, before = env.at(2), env.at(1)
    assert [one.key() for one in (env, now, before)] == ["2", "2", "1"]
    assert [step(now, "go").observation[0]["content"], now.key(), env.key()] == ["3", "3", "2"]  # type: ignore[index]
    assert len({step(one, "pid").observation for one in (env, now, before)}) == 3
    assert len({step(one, "random").observation for one in (env, now, before)}) == 3
    for one in (now, before):
        one.close()
    with pytest.raises(Failure, match="ended during step"):
        step(env, "exit")


def test_a_process_plays_one_episode_after_the_other_and_loads_the_file_once(counts: Remote) -> None:
    seen = set()
    for _ in range(4):
        env = begun(counts)
        seen.add(step(env, "pid").observation)
        counts.host.free(env.env._child)
        env.env._child = None
    assert len(seen) == 1 and len(next(iter(seen)).split()) == 2  # type: ignore[union-attr]


def test_instances_that_are_forgotten_leave_no_process(counts: Remote) -> None:
    env: Any = begun(counts)
    pid = int(step(env, "pid").observation.split()[0])  # type: ignore[union-attr]
    del env
    gc.collect()
    assert gone(pid)


def test_environments_that_wait_and_those_that_have_little(file: Path) -> None:
    late = begun(Remote(f"{file}:Late"))
    assert step(late, "x").over
    bare = begun(Remote(f"{file}:Bare"))
    assert bare.key() is None and bare.seats() == ("",) and bare.tools() == [] and bare.seat() == ""
    assert step(bare, "x").reward == 1.0


def test_a_function_makes_instances_with_options(file: Path) -> None:
    made = resolve_task(f"{file}:make,start=4")
    assert isinstance(made, EnvSource)
    assert isinstance(made.factory(), RemoteEnv) and callable(made.factory().key)
    env = begun(made.factory)
    assert env.key() == "4"
    thinking = Intrinsic(made, ["think"]).task("train", 0)
    assert begun(thinking.given["env"]).key() == "4 | 0"


def test_a_process_that_is_killed_is_started_again(file: Path) -> None:
    remote = Remote(f"{file}:Bare")
    pid = int(subprocess.check_output(["pgrep", "-P", str(remote.host._end.peek()[2][0].pid)]))  # type: ignore[index]
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    assert step(begun(remote), "x").reward == 1.0


KILLED = """
import os, signal, sys
from burnish.envs.guarded import GuardedEnv
from burnish.envs.process import Remote
env = GuardedEnv(Remote(sys.argv[1]), 30)
env.observed(env.begin_reset(None, 0))
print(env.outcome(env.begin_step("pid")).observation, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_run_that_is_killed_leaves_no_process(file: Path) -> None:
    words = [sys.executable, "-c", KILLED, f"{file}:Counts"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert all(gone(int(pid)) for pid in done.stdout.split()) and len(done.stdout.split()) == 2


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Lost", r"Lost.tasks\('train'\) gives no list of rows \(FileNotFoundError: rows.json\); correct it"),
        (
            "Ends",
            r"mine.py:Ends ended \(exit status 0\) while it was loaded; does loading it, or tasks\(\), end Python\?",
        ),
        ("None_", r"has no function 'None_'; it has Counts, Late, Bare, Stuck, Lost, Ends"),
    ],
)
def test_a_file_that_cannot_be_loaded_is_a_sentence(name: str, why: str, file: Path) -> None:
    with pytest.raises(ValueError, match=why):
        resolve_task(f"{file}:{name}")


def test_the_first_reset_of_a_run_has_the_time_limit_of_the_run(file: Path, small_model: Path, tmp_path: Path) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError, match=r"reset\(\) of the environment had not answered after 0.5 s"):
        burnish.train(
            "grpo", model=small_model, task=f"{file}:Stuck", env_timeout=0.5, out=str(tmp_path / "run"), steps=1,
            prompts=1, n=2, max_new_tokens=4, eval_tasks=2, device="cpu",
        )  # fmt: skip
    assert time.perf_counter() - start < 30


def test_a_run_in_processes_is_the_run_in_its_own(file: Path, small_model: Path, tmp_path: Path) -> None:
    metrics = []
    for apart in (True, False):
        result = burnish.train(
            "grpo", model=small_model, task=f"{file}:Counts", env_process=apart, out=str(tmp_path / str(apart)),
            steps=2, prompts=2, n=3, turns=2, max_new_tokens=4, eval_tasks=0, eval_every=0, device="cpu",
        )  # fmt: skip
        metrics.append([(m["reward"], m["grad_norm"], m["turns"]) for m in result.metrics])
    assert metrics[0] == metrics[1]
