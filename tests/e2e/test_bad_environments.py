"""Environments, tools and endpoints that misbehave cost their own episode, with a reason, and leave nothing behind."""

from __future__ import annotations

import gc
import json
import re
import socket
import threading
import time
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import SMALL, build_cast

import burnish
from burnish.cli import main
from burnish.core.step import Step
from burnish.core.types import Clock, Group, Task
from burnish.draw.tasks import prompts
from burnish.envs.guarded import Failure, GuardedEnv
from burnish.envs.protocol import Outcome, read_outcome, shortened
from burnish.envs.tools import LONGEST, Tool, ToolEnv
from burnish.methods.table import find
from burnish.rollout.asking import Asker, answer, waiting
from burnish.rollout.play import play
from burnish.run.observers import Observer
from burnish.serve import ChatServer
from burnish.tasks.environment import EnvSource
from burnish.tasks.table import source
from burnish.util import threads


def episodes(model: Path, env: type, n: int, **settings: Any) -> tuple[Group, dict[str, float]]:
    models = build_cast(find("grpo").build(source("sort"), n=2), model)
    step = Step(Clock(0, 1), models, replace(SMALL, max_new_tokens=4, **{"env_timeout": 20.0, **settings}))
    [group] = play(n).call([EnvSource(env).task("train", 0)], step)
    return group, step.notes.values()


class Odd:
    """Every instance misbehaves in a way of its own; the first (which makes the prompt) and the last do not."""

    made = 0
    ways = (
        "fine",
        "nan",
        "none",
        "raises in key",
        "raises in close",
        "long",
        "raises TimeoutError",
        "infinite",
        "list",
    )

    def __init__(self) -> None:
        self.way = Odd.ways[Odd.made % len(Odd.ways)]
        Odd.made += 1
        self.steps = 0

    def reset(self, task: Any, seed: int) -> str:
        return "begin"

    def step(self, action: str) -> Any:
        self.steps += 1
        done = self.steps == 2
        if self.way == "nan":
            return "x", float("nan"), done
        if self.way == "none":
            return None
        if self.way == "raises TimeoutError":
            raise TimeoutError("the database did not answer")
        if self.way == "infinite":
            return "x", float("inf"), done
        if self.way == "list":
            return [{"role": "narrator\n", "content": "x"}], 0.0, done
        return ("x" * 1_000_000 if self.way == "long" else "x"), 1.0, done

    def key(self) -> str:
        if self.way == "raises in key" and self.steps:
            raise RuntimeError("no key")
        return str(self.steps)

    def close(self) -> None:
        if self.way == "raises in close":
            raise RuntimeError("cannot close")


def test_each_failure_has_its_reason_and_the_others_go_on(small_model: Path) -> None:
    Odd.made = 0
    group, notes = episodes(small_model, Odd, len(Odd.ways) - 1)
    why = sorted(trace.note["why"] for trace in group.traces if "why" in trace.note)
    expected = [
        "a step's reward is 'inf'",
        "a step's reward is 'nan'",
        "key() of the environment raised RuntimeError: no key",
        "narrator",
        "raised TimeoutError: the database did not answer",
        "step returned 'None'",
    ]
    assert len(why) == len(expected) == notes["env_failures"]
    for reason in expected:
        assert sum(reason in one for one in why) == 1, (reason, why)
    others = {trace.note["stopped"] for trace in group.traces if "why" not in trace.note}
    assert others <= {"done", "context"} and "done" in others  # a megabyte fills the context


class Bytes:
    """Says what was not UTF-8, as os.fsdecode gives it, and spells a control token."""

    def reset(self, task: Any, seed: int) -> str:
        return "begin \udc80"

    def step(self, action: str) -> Any:
        return [{"role": "tool", "name": "cat", "content": "\ud800 \x00 <|end|> ü"}], 1.0, False


def test_text_that_is_not_unicode_is_no_end_of_the_run(small_model: Path) -> None:
    group, notes = episodes(small_model, Bytes, 2, turns=2)
    assert "env_failures" not in notes
    assert all(trace.note["stopped"] == "turns" for trace in group.traces)


class Named:
    """Has fields that are called like methods of an environment."""

    def __init__(self) -> None:
        self.key, self.seat, self.tools, self.fork, self.close = "red", 3, ["hammer"], None, False

    def reset(self, task: Any, seed: int) -> str:
        return "begin"

    def step(self, action: str) -> Any:
        return "end", 1.0, True


def test_fields_that_are_called_like_methods_are_not_called(small_model: Path) -> None:
    group, notes = episodes(small_model, Named, 2)
    assert "env_failures" not in notes and all(trace.note["stopped"] == "done" for trace in group.traces)


class Stuck:
    """Its key() of some instances never answers; the first instance makes the prompt."""

    made = 0
    free = threading.Event()

    def __init__(self) -> None:
        self.number = Stuck.made
        Stuck.made += 1

    def reset(self, task: Any, seed: int) -> str:
        return "begin"

    def step(self, action: str) -> Any:
        return "x", 1.0, True

    def key(self) -> str:
        if self.number % 2:
            Stuck.free.wait(60)
        return "here"


def test_a_key_that_never_comes_costs_its_own_episode(small_model: Path) -> None:
    Stuck.made = 0
    try:
        group, notes = episodes(small_model, Stuck, 4, env_timeout=0.5)
    finally:
        Stuck.free.set()
    assert notes["env_failures"] == 2
    assert sum("key() of the environment had not answered" in t.note.get("why", "") for t in group.traces) == 2


def test_what_a_step_gives_may_be_anything() -> None:
    class Mad:
        ways: list[Any] = [
            ("x", 10**400, True),
            ("x", [1.0, 2.0], True),
            Outcome("x", 1.0, rewards=[1.0]),  # type: ignore[arg-type]
            ("x", 1.0, True, False, {"valid": torch.tensor([1, 0])}),
        ]

        def reset(self) -> str:
            return "begin"

        def step(self, action: str) -> Any:
            return Mad.ways[int(action)]

    for way in range(len(Mad.ways)):
        env = GuardedEnv(Mad, 20)
        env.observed(env.begin_reset(None, 0))
        with pytest.raises(Failure, match=r"^step\(\) of the environment"):
            env.outcome(env.begin_step(str(way)))


def test_info_that_is_none_and_metrics_that_no_float_holds_are_left_out() -> None:
    assert read_outcome(Outcome("x", 1.0, info=None)).valid is None  # type: ignore[arg-type]
    found = read_outcome(("x", 1.0, True, False, {"metrics": {"large": 10**400, "nan": float("nan"), "good": 2}}))
    assert found.metrics() == {"good": 2.0}


def test_an_observation_is_cut_over_all_its_messages_and_parts() -> None:
    def said(text: str) -> dict[str, Any]:
        return {"role": "user", "content": text}

    assert shortened("abcde", 5) == ("abcde", 0)
    assert shortened("abcde", 3) == ("abc\n[2 more characters]", 2)
    cut, left_out = shortened((said("abc"), said("defg"), said("hi")), 5)
    assert cut == (said("abc"), said("de\n[2 more characters]")) and left_out == 4
    parts = {"role": "user", "content": [{"type": "text", "text": "abc"}, {"type": "text", "text": "d"}]}
    assert shortened((parts,), 4) == ((parts,), 0)
    cut, left_out = shortened((parts, {"role": "tool", "content": ""}), 2)
    assert left_out == 2 and cut == (
        {"role": "user", "content": [{"type": "text", "text": "ab\n[1 more characters]"}]},
    )


def test_messages_of_any_depth_are_failures() -> None:
    class Deep:
        def reset(self) -> Any:
            found: list[Any] = []
            for _ in range(900):
                found = [found]
            return [{"role": "user", "content": "x", "more": found}]

    env = GuardedEnv(Deep, 20)
    with pytest.raises(Failure, match=r"reset\(\) of the environment: it is nested too deeply"):
        env.observed(env.begin_reset(None, 0))


class Closed:
    """Cannot be reset for every third seed, and says too much for every third of the others."""

    def reset(self, task: Any, seed: int) -> str:
        if seed % 3 == 0:
            raise RuntimeError("no such room")
        return "x" * 100_000 if seed % 3 == 1 else "begin"

    def step(self, action: str) -> Any:
        return "x", 1.0, True


def test_tasks_that_cannot_be_started_are_episodes_that_failed(small_model: Path) -> None:
    models = build_cast(find("grpo").build(source("sort"), n=2), small_model)
    step = Step(Clock(0, 1), models, replace(SMALL, max_new_tokens=4, prompts=9))
    tasks = prompts(EnvSource(Closed), "env").call(step)
    groups = play(2).call(tasks, step)
    why = [trace.note.get("why", "") for group in groups for trace in group.traces]
    assert len(tasks) == 9 and step.notes.values()["env_failures"] == sum(map(bool, why))
    assert any(one.startswith("reset() of the environment raised RuntimeError: no such room") for one in why)
    assert any("the prompt has" in one and "but the context of 'policy' holds" in one for one in why) and "" in why
    with pytest.raises(ValueError, match="cannot be started: reset"):
        [EnvSource(Closed).task("train", i) for i in range(9)]


class Together:
    """Can be reset only while three others are."""

    others = threading.Barrier(4)

    def reset(self, task: Any, seed: int) -> str:
        self.others.wait(60)
        return "begin"

    def step(self, action: str) -> Any:
        return "x", 1.0, True


def test_a_draw_resets_environments_at_the_same_time_within_the_limit_of_the_run(small_model: Path) -> None:
    models = build_cast(find("grpo").build(source("sort"), n=2), small_model)
    step = Step(Clock(0, 1), models, replace(SMALL, prompts=4, env_timeout=50.0))
    assert [task.prompt[0]["content"] for task in prompts(EnvSource(Together), "env").call(step)] == ["begin"] * 4
    alone = replace(step, settings=replace(step.settings, prompts=1, env_timeout=0.05))
    [task] = prompts(EnvSource(Together), "env").call(alone)
    Together.others.abort()
    assert "had not answered after 0.05 s" in str(task.prompt)


@pytest.mark.parametrize(("rule", "reward"), [("zero", 1.5), ("drop", 2.0)])
def test_failed_episodes_are_kept_or_dropped_as_the_run_says(
    small_model: Path, tmp_path: Path, rule: str, reward: float
) -> None:
    (tmp_path / "env.py").write_text(
        "import itertools\nnumbers = itertools.count()\n"
        "class Crash:\n"
        "    def reset(self, seed):\n        self.bad, self.turn = next(numbers) % 2, 0\n        return 'begin'\n"
        "    def step(self, action):\n        self.turn += 1\n"
        "        assert not (self.bad and self.turn == 2), 'crashed'\n        return 'x', 1.0, self.turn == 2\n"
    )
    result = burnish.train(
        "grpo", model=str(small_model), task=f"{tmp_path}/env.py:Crash", steps=1, prompts=1, n=8, max_new_tokens=4,
        eval_tasks=0, eval_every=0, record=0, out=str(tmp_path / "run"), on_reward_failure=rule, env_process=False,
    )  # fmt: skip
    assert result.metrics["reward"][-1] == pytest.approx(reward)


def test_rows_that_cannot_be_listed_are_the_users_affair() -> None:
    class Lost:
        @staticmethod
        def tasks(split: str) -> Any:
            raise FileNotFoundError("rows.json")

    class One:
        @staticmethod
        def tasks(split: str) -> Any:
            return 1

    for env, why in ((Lost, "FileNotFoundError: rows.json"), (One, "'int' object is not iterable")):
        with pytest.raises(ValueError, match=rf"{env.__name__}.tasks\('train'\) gives no list of rows .*{why}"):
            EnvSource(env)


def flaky_file(folder: Path) -> str:
    """An environment that fails for every other seed."""
    (folder / "env.py").write_text(
        "class Flaky:\n"
        "    def reset(self, seed):\n        self.bad = seed % 2\n        return 'begin'\n"
        "    def step(self, action):\n        assert not self.bad, 'lost its way'\n        return 'end', 1.0, True\n"
    )
    return f"{folder}/env.py:Flaky"


def test_an_evaluation_says_how_many_episodes_failed(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["eval", str(small_model), "--task", flaky_file(tmp_path), "--tasks", "6", "--k", "2"]
    assert main([*words, "--max-new-tokens", "4"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert re.search(r"; \d+ episodes failed, the first because .*AssertionError: lost its way", said)


def test_a_run_warns_of_environments_that_fail(small_model: Path, tmp_path: Path) -> None:
    warnings: list[str] = []

    class Listening(Observer):
        def warned(self, said: str) -> None:
            warnings.append(said)

    burnish.train(
        "grpo", model=str(small_model), task=flaky_file(tmp_path), steps=1, prompts=6, n=2, max_new_tokens=4,
        eval_tasks=0, eval_every=0, record=0, out=str(tmp_path / "run"), observer=Listening(),
    )  # fmt: skip
    found = [one for one in warnings if "episodes failed (" in one]
    assert len(found) == 1 and "step 1: " in found[0] and "AssertionError: lost its way" in found[0]


def test_instances_are_let_go_after_their_episodes(small_model: Path) -> None:
    alive: weakref.WeakSet[Any] = weakref.WeakSet()

    class Counted:
        def __init__(self) -> None:
            alive.add(self)
            self.ballast = bytearray(1 << 20)

        def reset(self, task: Any, seed: int) -> str:
            return "begin"

        def step(self, action: str) -> tuple[str, float, bool]:
            return "x", 1.0, True

    before = threading.active_count()
    for _ in range(3):
        episodes(small_model, Counted, 8)
    for _ in range(100):
        gc.collect()
        if not alive and threading.active_count() <= before + 1 + len(threads._free):
            break
        time.sleep(0.05)
    assert not alive and threading.active_count() <= before + 1 + len(threads._free)


def call(tool: Any, arguments: str = "{}") -> str:
    [found] = (
        ToolEnv([Tool.of(tool)])
        .step(f'<tool_call>{{"name": "{tool.__name__}", "arguments": {arguments}}}</tool_call>')
        .observation
    )  # type: ignore[misc]
    return str(found["content"])


def test_tools_that_say_megabytes_or_nonsense_are_cut_and_told() -> None:
    def long() -> str:
        return "x" * 5_000_000

    def circular() -> Any:
        found: list[Any] = []
        found.append(found)
        return found

    def exits() -> str:
        raise SystemExit(3)

    def nothing() -> None:
        return None

    def binary() -> bytes:
        return b"\x00\xff"

    assert call(long).endswith(f"[{5_000_000 - LONGEST} more characters]") and len(call(long)) < LONGEST + 40
    assert call(circular).startswith("error: ValueError") and call(exits) == "error: SystemExit: 3"
    assert call(nothing) == "null" and "x00" in call(binary)


def test_a_tool_that_hangs_has_a_time_limit() -> None:
    free = threading.Event()

    def hangs() -> str:
        """Never answers."""
        free.wait(30)
        return "late"

    env = GuardedEnv(lambda: ToolEnv([Tool.of(hangs)]), seconds=0.5)
    env.observed(env.begin_reset(None, 0))
    with pytest.raises(Failure, match="had not answered after 0.5 s"):
        env.outcome(env.begin_step('<tool_call>{"name": "hangs", "arguments": {}}</tool_call>'))
    free.set()


def test_a_client_that_goes_away_leaves_the_server_as_it_was(
    small_model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    models = build_cast(find("grpo").build(source("sort"), n=2), small_model)
    step = Step(Clock(0, 1), models, replace(SMALL, max_new_tokens=4))
    server = ChatServer()
    session = server.open(Asker(step, Task("question", "x", {}, "x"), 0))
    body = json.dumps({"messages": [{"role": "user", "content": "a"}], "stream": True}).encode()
    where = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    head = (
        f"POST /sessions/{session.id}/v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{where[1]}\r\n"
        f"Authorization: Bearer {server.token}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    for _ in range(3):
        with socket.create_connection(where) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
            client.sendall(head.encode() + body)
            time.sleep(0.05)
        answer(server, waiting(server, patience=10.0), step)
    with socket.create_connection(where) as client:  # half a request
        client.sendall(head.encode() + body[:5])
    time.sleep(0.3)
    server.end()
    assert "Traceback" not in capfd.readouterr().err


def test_an_openenv_server_that_dies_mid_episode_costs_the_episode(small_model: Path) -> None:
    pytest.importorskip("websockets")
    from websockets.sync.server import serve

    from burnish.envs.of_openenv import OpenEnvClient

    steps: list[str] = []

    def handler(socket_: Any) -> None:
        for message in socket_:
            kind = json.loads(message)["type"]
            steps.append(kind)
            if kind == "step" and steps.count("step") == 2:
                return  # it hangs up
            observation = {"observation": {"text": "x"}, "reward": None, "done": False}
            said: Any = {"type": "observation", "data": observation}
            socket_.send(json.dumps([1, 2] if kind == "step" and steps.count("step") == 3 else said))

    def http(connection: Any, request: Any) -> Any:
        schema = {"action": {"properties": {"message": {"type": "string"}, "metadata": {}}}}
        return connection.respond(200, json.dumps(schema)) if request.path == "/schema" else None

    with serve(handler, "127.0.0.1", 0, process_request=http) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        for why in ("ConnectionClosed", "the server answered"):
            env = GuardedEnv(lambda: OpenEnvClient(url), 20)
            env.observed(env.begin_reset(None, 1))
            if why == "ConnectionClosed":
                assert env.outcome(env.begin_step("a")).observation == "x"
            with pytest.raises(Failure, match=why):
                env.outcome(env.begin_step("b"))
            env.close()
        server.shutdown()
