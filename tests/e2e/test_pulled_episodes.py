"""`burnish serve MODEL --train METHOD`: an outside program pulls episodes, works on them with the real client, and
pays.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL, build_cast
from guards import guards

from burnish.core.step import Step
from burnish.core.types import Clock, Task
from burnish.methods.table import find
from burnish.rollout.hosted import hosted
from burnish.serve import pulled as module
from burnish.serve.pulled import KEY, Pulled, read_pulled
from burnish.tasks.table import source

pytestmark = guards("serve", "rollout")

openai = pytest.importorskip("openai", reason="the client of the OpenAI protocol: pip install openai")
TOKEN = "a-key-for-tests-0123456789"
TASKS = [Task("question", ({"role": "user", "content": "Sort: b a"},), {"answer": "a b", "env": object()}, "one")]


def post(url: str, content: Any, token: str = TOKEN) -> Any:
    request = urllib.request.Request(url, json.dumps(content).encode(), {"Authorization": f"Bearer {token}"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


def work(url: str, play: Any, worker: int = 0) -> list[dict[str, Any]]:
    """Pull episodes until the run is done."""
    found = []
    while True:
        episode = post(f"{url}/episodes", {})
        if episode.get("done"):
            return found
        if episode["id"]:
            found.append(episode)
            play(episode, openai.OpenAI(base_url=episode["base_url"], api_key=TOKEN, max_retries=0))


@pytest.fixture
def desk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pulled]:
    monkeypatch.setenv(KEY, TOKEN)
    monkeypatch.setattr(module, "PATIENCE", 1.0)
    made = Pulled(0)
    yield made
    made.close()
    made.server.end()


def step_with(model: Path, **more: Any) -> Step:
    models = build_cast(find("grpo").build(source("sort"), n=2), model)
    return Step(Clock(0, 1), models, replace(SMALL, max_new_tokens=6, turns=4, **{"env_timeout": 60.0, **more}))


def test_a_program_pulls_episodes_streams_calls_tools_and_pays(desk: Pulled, small_model: Path) -> None:
    tool = {"type": "function", "function": {"name": "f", "description": "f", "parameters": {"type": "object"}}}

    late: list[dict[str, Any]] = []

    def play(episode: dict[str, Any], client: Any) -> None:
        messages = episode["task"]["prompt"]
        pieces = client.chat.completions.create(model="m", messages=messages, stream=True)
        text = "".join(chunk.choices[0].delta.content or "" for chunk in pieces)
        going_on = [*messages, {"role": "assistant", "content": text}, {"role": "user", "content": "more"}]
        asked = ({"messages": [{"role": "user", "content": "a"}], "tools": [tool]}, {"messages": going_on})
        ask = client.chat.completions.create
        several = [threading.Thread(target=ask, kwargs={"model": "m", **one}) for one in asked]
        for thread in several:
            thread.start()
        for thread in several:
            thread.join()
        post(episode["base_url"] + "/../reward", {"value": 0.25})  # as it is documented: urllib sends the dots
        with contextlib.suppress(openai.NotFoundError):  # the episode is over: this reply is not one of its own
            ask(model="m", messages=[{"role": "user", "content": "late"}])
            late.append(episode)

    url = desk.server.url
    workers = [threading.Thread(target=work, args=(url, play), daemon=True) for _ in range(3)]
    for worker in workers:
        worker.start()
    step = step_with(small_model)
    [group] = hosted(desk, 4).call(TASKS, step)
    assert len(group.traces) == 8 and not late  # each episode: one conversation of two replies, one of a single reply
    assert all(trace.scores["reward"] == 0.25 for trace in group.traces)
    assert sorted(len(trace.turns) for trace in group.traces) == [2] * 4 + [4] * 4
    bare = urllib.request.Request(f"{url}/episodes", method="POST", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(bare, timeout=60) as answer:  # as curl -X POST sends it, without a body
        assert json.load(answer)["id"] is None
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(f"{url}/episodes", {}, token="wrong")
    assert refused.value.code == 401
    desk.close()
    for worker in workers:
        worker.join(20)
        assert not worker.is_alive()


def test_the_row_is_plain_and_evaluation_is_said_and_the_verifier_may_judge(desk: Pulled, small_model: Path) -> None:
    seen: list[dict[str, Any]] = []

    def play(episode: dict[str, Any], client: Any) -> None:
        seen.append(episode)
        client.chat.completions.create(model="m", messages=episode["task"]["prompt"])
        post(episode["base_url"].replace("/v1", "/end"), {})

    threading.Thread(target=work, args=(desk.server.url, play), daemon=True).start()
    step = step_with(small_model)
    [group] = hosted(desk, 2, paid=False, one_trace=True).call(TASKS, step)
    assert [sorted(episode["task"]) for episode in seen] == [["answer", "prompt"]] * 2 and seen[0]["evaluation"]
    assert all("reward" not in trace.scores and trace.tags == {"tools"} for trace in group.traces)


def test_a_program_that_dies_costs_its_episode_and_the_run_goes_on(desk: Pulled, small_model: Path) -> None:
    """One worker pulls an episode and never comes back; the endpoint also answers what belongs to no episode."""
    url, lost = desk.server.url, threading.Event()

    def dies() -> None:
        post(f"{url}/episodes", {})
        lost.set()

    def play(episode: dict[str, Any], client: Any) -> None:
        client.chat.completions.create(model="m", messages=episode["task"]["prompt"])
        free = openai.OpenAI(base_url=f"{url}/v1", api_key=TOKEN, max_retries=0)
        assert free.chat.completions.create(model="m", messages=episode["task"]["prompt"]).choices
        post(episode["base_url"] + "/reward", {"value": 1.0})

    def one_after_the_other() -> None:
        dies()
        work(url, play)

    threading.Thread(target=one_after_the_other, daemon=True).start()
    step = step_with(small_model, env_timeout=3.0)
    [group] = hosted(desk, 3).call(TASKS, step)
    assert lost.is_set() and step.notes.values()["env_failures"] == 1
    assert [trace.scores["reward"] for trace in group.traces] == [1.0, 1.0]


def test_a_spec_is_read_and_a_short_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_pulled("my_agent.py:run") is None and read_pulled("serve:8765") is read_pulled("serve:8765")
    with pytest.raises(ValueError, match="'x' is no port"):
        read_pulled("serve:x")
    monkeypatch.setenv(KEY, "short")
    with pytest.raises(ValueError, match="at least 16"):
        _ = Pulled(0).server


@pytest.mark.slow
def test_the_command_trains_on_pulled_episodes(tmp_path: Path, small_model: Path) -> None:
    """The whole flow in a process of its own: two steps, held-out evaluation, a saved model."""
    words = [sys.executable, "-m", "burnish", "serve", str(small_model), "--train", "grpo", "--task", "sort:1",
             "--port", "0", "--steps", "2", "--prompts", "2", "--n", "2", "--max-new-tokens", "4",
             "--eval-tasks", "2", "--eval-every", "0",
             "--out", str(tmp_path / "run"), "--quiet"]  # fmt: skip
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, KEY: TOKEN})
    assert process.stdout is not None
    url = process.stdout.readline().split()[1].removesuffix("/episodes")
    paid = iter(range(1000))

    def play(episode: dict[str, Any], client: Any) -> None:
        client.chat.completions.create(model="m", messages=episode["task"]["prompt"])
        post(episode["base_url"].replace("/v1", "/reward"), {"value": next(paid) % 2})

    seen: list[dict[str, Any]] = []

    def all_of_them() -> None:
        with contextlib.suppress(OSError):  # the process has ended
            seen.extend(work(url, play))

    worker = threading.Thread(target=all_of_them, daemon=True)
    worker.start()
    out, _ = process.communicate(timeout=200)
    assert process.returncode == 0, out
    assert (tmp_path / "run" / "model").is_dir()
    assert next(paid) >= 8  # two steps of two tasks with two episodes each, and the evaluation
