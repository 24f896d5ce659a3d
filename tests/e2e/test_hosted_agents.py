"""Agents that are programs of their own are trained through an OpenAI-compatible endpoint, with the real client."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL, build_cast, make_model
from guards import guards

from burnish.compose.multi_turn import played
from burnish.core.step import Step
from burnish.core.types import Clock, Task
from burnish.methods.table import find
from burnish.models.reply_end import following
from burnish.rollout.asking import Asker, answer, waiting
from burnish.rollout.hosted import hosted
from burnish.serve import BadRequest, ChatServer
from burnish.serve.protocol import read_request
from burnish.tasks.table import source
from burnish.tasks.task_set import with_agent

pytestmark = guards("serve", "rollout")

openai = pytest.importorskip("openai", reason="the client of the OpenAI protocol: pip install openai")
TASKS = [Task("question", ({"role": "user", "content": "Sort: b a"},), {"answer": "a b"}, "one")]


def step_with(model: Path, **more: Any) -> Step:
    models = build_cast(find("grpo").build(source("sort"), n=2), model)
    return Step(Clock(0, 1), models, replace(SMALL, max_new_tokens=6, turns=4, env_timeout=60.0, **more))


def two_calls(task: dict[str, Any], base_url: str, api_key: str) -> float:
    """An agent as anybody writes it: a conversation of two calls with the plain client."""
    client = openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
    messages = [dict(message) for message in task["prompt"]]
    for _ in range(2):
        reply = client.chat.completions.create(model="policy", messages=messages)
        messages.append(reply.choices[0].message.model_dump(exclude_none=True))
        messages.append({"role": "user", "content": "again"})
    return 0.25


def test_a_plain_client_is_recorded_token_by_token(small_model: Path) -> None:
    step = step_with(small_model)
    [group] = hosted(two_calls, 2).call(TASKS, step)
    assert [trace.scores["reward"] for trace in group.traces] == [0.25, 0.25]
    chat = step.models["policy"].chat
    for trace in group.traces:
        assert [turn.author for turn in trace.turns] == ["task", "policy", "env", "policy"]
        first, second = trace.turns[1], trace.turns[3]
        assert first.logp is not None and second.logp is not None and len(first.logp) == len(first)
        assert trace.turns[2].tokens.tolist() == following(chat, first.tokens, "again").tolist()
        found = step.models["policy"].streams([trace], [trace.by("policy")], {"logp"}, 4096)[0]["logp"]
        start = len(trace.turns[0])
        assert (
            found[start : start + len(first)] - first.logp
        ).abs().max() < 1e-4  # what was sampled, as it was sampled
    assert step.notes.values()["restarts"] == 0 and step.notes.values()["turns"] == 2


def test_a_conversation_that_does_not_go_on_begins_a_new_trace(small_model: Path) -> None:
    def forgets(task: dict[str, Any], base_url: str, api_key: str) -> float:
        client = openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
        for text in ("one", "two"):
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
        return 1.0

    step = step_with(small_model)
    [group] = hosted(forgets, 1).call(TASKS, step)
    assert [len(trace.turns) for trace in group.traces] == [2, 2]
    assert step.notes.values()["restarts"] == 0.5
    [whole] = hosted(forgets, 1, one_trace=True).call(TASKS, step)
    assert len(whole.traces) == 1


def test_streams_parallel_calls_and_async_clients(small_model: Path) -> None:
    async def parallel(task: dict[str, Any], base_url: str, api_key: str) -> float:
        import asyncio

        client = openai.AsyncOpenAI(base_url=base_url, api_key=api_key, max_retries=0)

        async def one(text: str) -> str:
            messages = [{"role": "user", "content": text}]
            stream = await client.chat.completions.create(model="m", messages=messages, stream=True, temperature=0)
            return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

        texts = await asyncio.gather(one("a"), one("a"), one("b"))
        return float(texts[0] == texts[1])

    [group] = hosted(parallel, 1).call(TASKS, step_with(small_model))
    assert [trace.scores["reward"] for trace in group.traces] == [1.0] * 3
    assert "failed" not in group.traces[0].note


def test_what_an_agent_does_wrong_costs_its_own_episode(small_model: Path) -> None:
    count = iter(range(100))

    def sometimes(task: dict[str, Any], base_url: str, api_key: str) -> float | None:
        k = next(count)
        two_calls(task, base_url, api_key)
        if k == 0:
            raise KeyError("lost")
        return None if k == 1 else 1.0

    step = step_with(small_model)
    [group] = hosted(sometimes, 3).call(TASKS, step)
    whys = [trace.note.get("why", "") for trace in group.traces]
    assert sum("the agent raised KeyError" in why for why in whys) == 1
    assert sum("which is no reward" in why for why in whys) == 1
    assert step.notes.values()["env_failures"] == 2
    with pytest.raises(ValueError, match="every episode of the agent failed; the first: the agent raised OSError"):
        hosted(lambda *_: (_ for _ in ()).throw(OSError("down")), 2).call(TASKS, step)


def test_an_agent_that_asks_nothing_has_nothing_to_learn_from(small_model: Path) -> None:
    def lazy(task: dict[str, Any], base_url: str, api_key: str) -> float:
        return two_calls(task, base_url, api_key) if task["answer"] == "a b" else 1.0

    easy = replace(TASKS[0], given={"answer": "known"}, key="two")
    groups = hosted(lazy, 2).call([easy, *TASKS], step_with(small_model))
    assert [group.task.key for group in groups] == ["one"] and len(groups[0].traces) == 2
    with pytest.raises(ValueError, match="no episode of the agent asked the policy anything"):
        hosted(lazy, 2).call([easy], step_with(small_model))


def test_too_many_calls_and_long_prompts_are_answered_with_a_reason(small_model: Path) -> None:
    seen: list[str] = []

    def greedy(task: dict[str, Any], base_url: str, api_key: str) -> float:
        client = openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
        for text in ["x" * 2000, *"abcde"]:
            try:
                client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
            except openai.BadRequestError as error:
                seen.append(str(error))
        return 1.0

    hosted(greedy, 1).call(TASKS, step_with(small_model))
    assert "context" in seen[0] and "has made its 4 calls; raise --turns" in seen[-1]


def test_the_endpoint_is_guarded(small_model: Path) -> None:
    server = ChatServer()
    server.open(name="default")
    try:

        def ask(path: str, body: bytes = b"{}", token: str = "", host: str | None = None) -> tuple[int, str]:
            headers = {"Authorization": f"Bearer {token}"} | ({"Host": host} if host else {})
            request = urllib.request.Request(server.url + path, body, headers)
            try:
                with urllib.request.urlopen(request, timeout=10) as found:
                    return found.status, found.read().decode()
            except urllib.error.HTTPError as error:
                return error.code, error.read().decode()

        assert server.url.startswith("http://127.0.0.1:")
        with pytest.raises(ValueError, match="cannot be used .*; pass --port 0"):
            ChatServer(port=int(server.url.rpartition(":")[2]))
        assert ask("/v1/chat/completions")[0] == 401 and ask("/v1/chat/completions", token=server.token[:-1])[0] == 401
        assert ask("/v1/chat/completions", token=server.token, host="evil.example")[0] == 421
        assert ask("/sessions/none/v1/chat/completions", token=server.token)[0] == 404
        assert ask("/v1/chat/completions", token=server.token)[0] == 400
        assert ask("/reward", b'{"value": 1}', server.token)[0] == 404  # no episode is named
        session = server.open()
        assert ask(f"/sessions/{session.id}/reward", b'{"value": "NaN"}', server.token)[0] == 400
        assert ask(f"/sessions/{session.id}/reward", b'{"value": 1%s}' % (b"0" * 400), server.token)[0] == 400
        assert session.reward is None and not session.ended.is_set()
        assert "token" not in ask("/v1/models/../../etc/passwd", token=server.token)[1]
    finally:
        server.end()


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"{", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b'{"messages": []}', "1 to 10000 messages"),
        (b'{"messages": [{"content": "x"}]}', '"role" and "content"'),
        (b'{"messages": [{"role": "user", "content": 3}]}', "must be text"),
        (
            b'{"messages": [{"role": "user", "content": "x"}], "n": 200}',
            "n is 200; it must be a whole number from 1 to 128",
        ),
        (b'{"messages": [{"role": "user", "content": "x"}], "temperature": -1}', "between 0 and 10"),
        (b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 0}', "at least 1"),
        (b'{"messages": [{"role": "user", "content": "x"}], "tools": 5}', "tools must be a list"),
        (b'{"messages": [{"role": "user", "content": "x"}], "tools": [5]}', "tools must be a list"),
        (b'{"messages": [{"role": "assistant", "content": "x", "tool_calls": 5}]}', "tool_calls of a message must be"),
        (b"[" * 100_000, "not valid JSON"),
    ],
)
def test_bad_requests_say_what_is_wrong(body: bytes, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        read_request(body)


def test_any_method_trains_an_agent(small_model: Path) -> None:
    from burnish.core.loop import loop

    task = with_agent(source("sort"), two_calls, pays=False)
    method = played(find("grpo").build(task, n=2), task)
    assert [atom.name for atom in method.phases[0].score] == ["verify(sort)"]
    report = next(loop(method, build_cast(method, small_model), replace(SMALL, max_new_tokens=4), steps=1))
    assert {"correct", "reward"} <= report.groups["main"][0].traces[0].scores.keys()
    paid = with_agent(source("sort"), two_calls, pays=True)
    method = played(find("grpo").build(paid, n=2), paid)
    assert not list(method.phases[0].score)
    report = next(loop(method, build_cast(method, small_model), replace(SMALL, max_new_tokens=4), steps=1))
    assert report.metrics["reward"] == 0.25


def test_max_tokens_and_log_probs_of_a_request(tmp_path: Path) -> None:
    step = step_with(make_model(tmp_path))
    server = ChatServer()
    session = server.open(Asker(step, TASKS[0], 0))
    found: list[Any] = []

    def ask() -> None:
        client = openai.OpenAI(base_url=server.base_url(session), api_key=server.token, max_retries=0)
        messages = [{"role": "user", "content": "?"}]
        found.append(client.chat.completions.create(model="m", messages=messages, max_tokens=2, logprobs=True))
        found.append(client.models.list().data[0].id)

    thread = threading.Thread(target=ask)
    thread.start()
    while thread.is_alive():
        answer(server, waiting(server), step)
    server.end()
    reply = found[0]
    assert reply.usage.completion_tokens == 2 == len(reply.choices[0].logprobs.content)
    assert reply.choices[0].finish_reason == "length" and found[1] == "burnish"
    assert json.loads(reply.model_dump_json())["choices"][0]["token_ids"]


def test_a_refused_request_leaves_the_connection_usable_or_says_that_it_closes(small_model: Path) -> None:
    """A connection that closes without a word makes the next request of a pooled client fail."""
    import http.client

    server = ChatServer()
    server.open(name="default")
    try:
        connection = http.client.HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), timeout=10)
        known = {"Authorization": f"Bearer {server.token}", "Content-Type": "application/json"}
        for _ in range(3):  # the body was read: the same connection serves the next request
            connection.request("POST", "/v1/chat/completions", b"[]", known)
            answer_ = connection.getresponse()
            assert answer_.status == 400 and answer_.read() and answer_.getheader("Connection") is None
            assert connection.sock is not None
        connection.request("POST", "/v1/chat/completions", b"x" * 100_000, {"Authorization": "Bearer wrong"})
        answer_ = connection.getresponse()
        assert answer_.status == 401 and b"API key" in answer_.read() and answer_.getheader("Connection") == "close"
    finally:
        server.end()


def test_single_replies_can_be_paid(small_model: Path) -> None:
    """0.5 for each of two replies and 1 for the episode: 2 in all, and the last reply has 0.5 + 1."""

    def run(task: dict[str, Any], base_url: str, api_key: str) -> float:
        client = openai.OpenAI(base_url=base_url, api_key=api_key, max_retries=0)
        messages = [dict(message) for message in task["prompt"]]
        for _ in range(2):
            reply = client.chat.completions.create(model="policy", messages=messages)
            client.post("/reward", body={"value": 0.5, "id": reply.id}, cast_to=object)
            messages += [reply.choices[0].message.model_dump(exclude_none=True), {"role": "user", "content": "again"}]
        with pytest.raises(openai.BadRequestError, match="has no reply with the id 'other'"):
            client.post("/reward", body={"value": 0.5, "id": "other"}, cast_to=object)
        return 1.0

    [group] = hosted(run, 1).call(TASKS, step_with(small_model))
    [trace] = group.traces
    assert trace.scores["reward"] == 2.0
    task, first, env, second = trace.turn_scores["reward"]
    assert (first, second) == (0.5, 1.5) and task != task and env != env  # NaN: the others are no replies
