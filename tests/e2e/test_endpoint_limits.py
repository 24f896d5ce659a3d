"""The OpenAI endpoint: a request fails alone, whatever it raises, and clients without the key cost next to nothing."""

from __future__ import annotations

import http.client
import json
import queue
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL, build_cast
from serving import answer as read_answer

from burnish.core.step import Step
from burnish.core.types import Clock, Task
from burnish.methods.table import find
from burnish.rollout import asking
from burnish.rollout.asking import Asker, Questions, answer, waiting
from burnish.serve import Asked, ChatServer, Question, Session
from burnish.serve.asked import Answered, Failure
from burnish.tasks.table import source
from burnish.util.http_limits import Guesses

HELLO = [{"role": "user", "content": "hello"}]
TASK = Task("question", "?", {}, "served")


@pytest.fixture(scope="module")
def step(small_model: Path) -> Step:
    models = build_cast(find("grpo").build(source("sort"), n=2), small_model)
    return Step(Clock(0, 1), models, replace(SMALL, max_new_tokens=4))


@pytest.fixture
def server() -> Iterator[ChatServer]:
    made = ChatServer()
    made.open(name="default")
    yield made
    made.end()


@contextmanager
def answering(server: ChatServer, step: Step) -> Iterator[Session]:
    """A session whose questions are answered by the model of a step, in a thread. What ends the loop is raised."""
    session = server.open(Asker(step, TASK, 0))
    over, raised = threading.Event(), []

    def work() -> None:
        try:
            while not over.is_set():
                answer(server, waiting(server, 0.05), step)
        except BaseException as error:  # noqa: BLE001 - it is asserted below
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield session
    finally:
        over.set()
        thread.join()
    assert not raised, raised


def post(server: ChatServer, session: Session, body: bytes) -> tuple[int, Any]:
    line = http.client.HTTPConnection("127.0.0.1", port(server), timeout=20)
    line.request(
        "POST", f"/sessions/{session.id}/v1/chat/completions", body, {"Authorization": f"Bearer {server.token}"}
    )
    found = line.getresponse()
    content = json.loads(found.read())
    line.close()
    return found.status, content


def port(server: ChatServer) -> int:
    return int(server.url.rpartition(":")[2])


def asked_as(**more: Any) -> bytes:
    return json.dumps({"messages": HELLO, **more}).encode()


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


DEEP_CALL = {"function": {"name": "f", "arguments": nested(900).decode()}}
CALL = {"role": "assistant", "content": "", "tool_calls": [DEEP_CALL]}
HOSTILE = {
    "deep JSON in a key of a message": b'{"messages": [{"role": "user", "content": "x", "more": %s}]}' % nested(900),
    "deep JSON in a tool": b'{"messages": [{"role": "user", "content": "x"}], "tools": [{"a": %s}]}' % nested(900),
    "deep JSON in an option": b'{"messages": [{"role": "user", "content": "x"}], "stop": %s}' % nested(900),
    "deep JSON in arguments": json.dumps({"messages": [*HELLO, CALL, *HELLO]}).encode(),
    "very deep JSON": nested(400_000),
    "a list as the type of a part": b'{"messages": [{"role": "user", "content": [{"type": ["text"], "text": "x"}]}]}',
    "a mapping as the type of a part": b'{"messages": [{"role": "user", "content": [{"type": {}}]}]}',
    "an odd role": b'{"messages": [{"role": "<|im_end|>", "content": "x"}]}',
    "a huge number": asked_as(temperature=10**4000),
    "a huger one": b'{"messages": [{"role": "user", "content": "x"}], "max_tokens": 1%s}' % (b"0" * 5000),
    "an overflow": b'{"messages": [{"role": "user", "content": "x"}], "temperature": 1e999}',
    "not a number": b'{"messages": [{"role": "user", "content": "x"}], "temperature": NaN}',
    "calls that are none": b'{"messages": [{"role": "assistant", "content": "x", "tool_calls": [1, {"function": 3}]}]}',
    "text that is not UTF-8": b'{"messages": "\xff"}',
}


def test_a_request_fails_alone_whatever_it_is(server: ChatServer, step: Step) -> None:
    with answering(server, step) as session:
        for kind, body in HOSTILE.items():
            status, found = post(server, session, body)
            assert status == 400 and set(found["error"]) == {"message", "type", "code"}, (kind, status, found)
        status, found = post(server, session, asked_as())
        assert status == 200 and found["choices"][0]["message"]["role"] == "assistant"


@pytest.mark.parametrize("temperature", [1e-38, 1e-320, 1e-6])
def test_a_tiny_temperature_is_greedy(temperature: float, server: ChatServer, step: Step) -> None:
    """1e-38 divided the logits to infinity, which ended the run."""
    with answering(server, step) as session:
        cold, greedy = (post(server, session, asked_as(temperature=one)) for one in (temperature, 0))
    assert cold[0] == 200 and cold[1]["choices"][0]["token_ids"] == greedy[1]["choices"][0]["token_ids"]


def test_what_the_engine_raises_for_one_request_is_not_the_others(server: ChatServer, step: Step) -> None:
    """The engine itself cannot sample at 1e-38. The four others get the tokens that they get without it."""

    def ask_all(temperatures: list[float]) -> list[Answered | Failure]:
        session = Session("s", Asker(step, TASK, 0))
        texts = [({"role": "user", "content": f"number {i}"},) for i in range(len(temperatures))]
        questions = [Question(session, Asked(t, temperature=one)) for t, one in zip(texts, temperatures, strict=True)]
        answer(server, questions, step)
        assert len(session.state.talk.all) == sum(one > 1e-30 for one in temperatures)  # nothing else is trained on
        return [question.answer.get_nowait() for question in questions]

    undisturbed, found = ask_all([1.0] * 5), ask_all([1.0, 1.0, 1e-38, 1.0, 1.0])
    for i, (one, other) in enumerate(zip(found, undisturbed, strict=True)):
        if i == 2:
            assert isinstance(one, Failure) and one.status == 500 and "NotFinite" in one.why
        else:
            assert isinstance(one, Answered) and isinstance(other, Answered) and one.tokens == other.tokens


def test_broken_weights_end_the_run(server: ChatServer, step: Step) -> None:
    """Then the fault is not a request's."""
    weight = next(step.models["policy"].module.parameters())
    kept = weight.data.clone()
    session = Session("s", Asker(step, TASK, 0))
    try:
        weight.data.fill_(float("nan"))
        step.models["policy"].weights_moved()
        with pytest.raises(FloatingPointError, match="NaN or infinite"):
            answer(server, [Question(session, Asked(tuple(HELLO)))], step)
    finally:
        weight.data.copy_(kept)
        step.models["policy"].weights_moved()


def test_a_refused_request_leaves_its_conversation_as_it_was(server: ChatServer, step: Step) -> None:
    """It can be asked again, and goes on from the same reply."""
    with answering(server, step) as session:
        first = post(server, session, asked_as(temperature=0))[1]["choices"][0]["message"]
        context = step.models["policy"].context
        too_long = [*HELLO, first, {"role": "user", "content": "x " * context}]
        status, found = post(server, session, json.dumps({"messages": too_long}).encode())
        assert status == 400 and "context holds" in found["error"]["message"]
        again = [*HELLO, first, {"role": "user", "content": "more"}]
        assert post(server, session, json.dumps({"messages": again}).encode())[0] == 200
        talk = session.state.talk
        assert [[turn.author for turn in one.turns] for one in talk.all] == [["task", "policy", "env", "policy"]]
        assert talk.restarts == 0


def test_a_session_without_a_model_is_an_error_of_its_requests(server: ChatServer, step: Step) -> None:
    question = Question(Session("s", None), Asked(tuple(HELLO)))
    assert Questions(server, step, lambda: True, 1, [question]).take(wait=False) == []
    found = question.answer.get_nowait()
    assert isinstance(found, Failure) and found.status == 500


def test_a_call_ends_under_steady_load(server: ChatServer, step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under load there was always one more question, so one call kept the tokens of all: 1 MiB for 100 requests."""
    monkeypatch.setattr(asking, "PER_CALL", 8)
    session = Session("s", Asker(step, TASK, 0))

    class Steady(queue.Queue[Question]):
        """Two new questions, whenever those that wait are asked for."""

        made = 0

        def get(self, block: bool = True, timeout: float | None = None) -> Question:
            self.made += 1
            if self.made % 3 == 0 or self.made > 60:
                raise queue.Empty
            return Question(session, Asked(({"role": "user", "content": f"number {self.made}"},), max_tokens=1))

    server.questions = Steady()
    assert 8 <= answer(server, [server.questions.get_nowait()], step) < 16


def test_the_default_session_is_there_when_the_address_is_printed(
    small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that reads the address and asks at once got 404."""
    from burnish.commands import serve

    told: dict[str, str] = {}
    found: list[int] = []

    class Console:
        def print(self, text: str, **_: Any) -> None:
            name, _, value = text.partition(":")
            told[name] = value.strip()
            if name == "API key":
                line = http.client.HTTPConnection(told["base URL"].split("/")[2], timeout=20)
                line.request("GET", "/v1/models", headers={"Authorization": f"Bearer {told['API key']}"})
                found.append(line.getresponse().status)
                line.close()

    monkeypatch.setattr(serve, "stdout_console", Console)
    serve.serve(str(small_model), serve.ServeOptions(port=0, device="cpu"), requests=0)
    assert found == [200]


# --------------------------------------------------------------------------------------------------------- strangers


def raw(server: ChatServer, sent: bytes) -> tuple[int, Any]:
    known = {b"HOST": b"Host: 127.0.0.1:%d" % port(server), b"KEY": b"Authorization: Bearer " + server.token.encode()}
    for name, value in known.items():
        sent = sent.replace(name, value)
    with socket.create_connection(("127.0.0.1", port(server)), timeout=20) as line:
        line.sendall(sent)
        return read_answer(line)


START = b"POST /v1/chat/completions HTTP/1.1\r\nHOST\r\nKEY\r\n"
FRAMES = {
    "5,000 digits": START + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n{}",
    "a sign": START + b"Content-Length: +2\r\n\r\n{}",
    "two lengths": START + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
    "a length and chunks": START + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunks": START + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a GET with a body": b"GET /v1/models HTTP/1.1\r\nHOST\r\nKEY\r\nContent-Length: 5\r\n\r\nGET /",
    "a GET in chunks": b"GET /v1/models HTTP/1.1\r\nHOST\r\nKEY\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two Hosts": b"GET /v1/models HTTP/1.1\r\nHOST\r\nHOST\r\nKEY\r\n\r\n",
    "two keys": b"GET /v1/models HTTP/1.1\r\nHOST\r\nKEY\r\nKEY\r\n\r\n",
}


@pytest.mark.parametrize("kind", FRAMES)
def test_a_request_whose_end_is_unclear_is_refused_and_ends_its_connection(kind: str, server: ChatServer) -> None:
    """`raw` reads to the end of the connection: nothing after the request is taken for another."""
    status, found = raw(server, FRAMES[kind])
    assert status == 400 and found["error"]["message"]


HOSTS = ["127.0.0.1", "localhost", "127.0.0.1:1", "[::1]:PORT", "evil.example:PORT", ":PORT", ""]


@pytest.mark.parametrize("host", HOSTS)
def test_the_host_is_the_address_that_was_printed(host: str, server: ChatServer) -> None:
    rest = b"KEY\r\nConnection: close\r\n\r\n"
    named = b"Host: " + host.replace("PORT", str(port(server))).encode() + b"\r\n"
    assert raw(server, b"GET /v1/models HTTP/1.1\r\n" + named + rest)[0] == 421
    for right in (b"127.0.0.1", b"localhost", b"LocalHost"):
        named = b"Host: %s:%d\r\n" % (right, port(server))
        assert raw(server, b"GET /v1/models HTTP/1.1\r\n" + named + rest)[0] == 200


def test_a_body_without_the_key_is_not_waited_for(server: ChatServer) -> None:
    begun = time.monotonic()
    start = b"POST /v1/chat/completions HTTP/1.1\r\nHOST\r\nAuthorization: Bearer no\r\nContent-Length: 4000\r\n\r\n{"
    assert raw(server, start)[0] == 401 and time.monotonic() < begun + 5


def test_strangers_hold_no_thread_and_keep_nobody_out(server: ChatServer) -> None:
    """Half of a request from each of 300, more than the endpoint keeps here."""
    http_server = server._http
    few = replace(http_server.limits, connections=200, strangers=50)
    http_server.limits = http_server.connections.limits = few
    before = threading.active_count()
    lines = []
    try:
        for i in range(300):
            lines.append(socket.create_connection(("127.0.0.1", port(server)), timeout=20))
            lines[-1].sendall(START.split(b"\r\n")[0] + b"\r\nX: y" if i % 2 else b"")
        assert raw(server, b"GET /v1/models HTTP/1.1\r\nHOST\r\nKEY\r\nConnection: close\r\n\r\n")[0] == 200
        assert threading.active_count() <= before + 1  # the one that answered
        assert len(http_server.connections) <= 51
    finally:
        for line in lines:
            line.close()


def test_wrong_keys_are_answered_later_and_later_and_the_right_one_is_not(server: ChatServer) -> None:
    server._http.guesses = Guesses(delays=(0.0, 0.5))
    wrong = b"GET /v1/models HTTP/1.1\r\nHOST\r\nAuthorization: Bearer wrong\r\n\r\n"
    times = []
    for sent in (wrong, wrong, b"GET /v1/models HTTP/1.1\r\nHOST\r\nKEY\r\nConnection: close\r\n\r\n"):
        begun = time.monotonic()
        status = raw(server, sent)[0]
        times.append(time.monotonic() - begun)
    assert status == 200 and times[0] < 0.5 <= times[1] and times[2] < 0.5


def test_hundreds_of_connections_with_the_key_are_kept(server: ChatServer) -> None:
    """An agent of many episodes opens all of them, then sends; all requests wait at once, and each is answered."""
    lines = [http.client.HTTPConnection("127.0.0.1", port(server), timeout=20) for _ in range(300)]
    try:
        for line in lines:
            line.connect()
        for line in lines:
            line.request("POST", "/v1/chat/completions", asked_as(), {"Authorization": f"Bearer {server.token}"})
        questions = [server.questions.get(timeout=20) for _ in lines]
        for question in questions:
            question.answer.put(Failure(400, "not today"))
        assert {line.getresponse().status for line in lines} == {400}
    finally:
        for line in lines:
            line.close()


def test_few_file_descriptors_are_shared_with_the_rest_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    from burnish.util.http_limits import room_for_connections

    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 4096))
    assert room_for_connections(4096) == 768 and room_for_connections(64) == 64
    monkeypatch.setattr(resource, "getrlimit", lambda which: (128, 128))
    assert room_for_connections(4096) == 32
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert room_for_connections(4096) == 4096
