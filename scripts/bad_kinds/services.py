"""Requests to the endpoint and to the dashboard, and answers of a judge's endpoint, that are damaged or odd."""

from __future__ import annotations

import atexit
import functools
import http.server
import json
import random
import socket
import threading
from pathlib import Path
from typing import Any

from bad_kinds.case import DEEP, HUGE, SMALL, Case, Wrong, damaged, noise
from bad_kinds.folders import finished
from bad_kinds.options import changed

SECONDS = 20.0  # that an answer may take
JSON: list[Any] = [
    None,
    0,
    -1,
    1,
    1.5,
    1e-38,
    1e308,
    float("nan"),
    float("inf"),
    10**400,
    True,
    "",
    "x",
    "\0",
    "\ud800",
]
JSON += [
    [],
    {},
    [[]],
    {"a": {}},
    "x" * 100_000,
    "<|end|>",
    [None],
    [1],
    [{}],
    "auto",
    {"type": "json_object"},
    ["x"] * 999,
]
ASKED: dict[str, Any] = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "2 + 2 ="}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "a", "name": "f", "content": "4"},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "", "parameters": {"type": "object"}}}],
    "temperature": 1.0,
    "top_p": 0.9,
    "max_tokens": 2,
    "n": 1,
    "stop": None,
    "stream": False,
    "logprobs": True,
}


def _exchanged(port: int, sent: bytes) -> int:
    """Send bytes; 0 or 2 by the status of the answer. Raises Wrong for a failure of the server, or no answer."""
    got = b""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as line:
        try:
            line.sendall(sent)
            line.shutdown(socket.SHUT_WR)
            while more := line.recv(65536):
                got += more
        except TimeoutError:
            raise Wrong(f"no answer, or no end of one, within {SECONDS:g} s: {got[:100]!r}") from None
        except ConnectionError:
            pass  # what is too large may be answered before it is read, and cut
    if not got:
        return 2  # half of a request, whose sender has gone
    head, _, body = got.partition(b"\r\n\r\n")
    words = head.split()
    if not head.startswith(b"HTTP/1.") or not words[1].isdigit():
        raise Wrong(f"no HTTP: {got[:200]!r}")
    status = int(words[1])
    if status >= 500 and status != 501:
        raise Wrong(f"status {status}: {body[:300]!r}")
    if status >= 400 and not json.loads(body.split(b"HTTP/1.1 ")[0] or b"{}").get("error"):
        raise Wrong(f"status {status} without a sentence: {body[:200]!r}")
    return 0 if status < 400 else 2


def _framed(method: str, path: str, body: bytes, headers: dict[str, str], odd: random.Random | None = None) -> bytes:
    """A request as bytes. odd: what is wrong with its framing, if anything."""
    headers = {"Content-Length": str(len(body)), "Connection": "close", **headers}
    version, ends, more = "HTTP/1.1", "\r\n", 0
    if odd is not None:
        how = odd.randrange(5)
        version = odd.choice(["HTTP/9.9", "", "HTTP/1.0"]) if how == 0 else version
        ends, more = "\n" if how == 1 else ends, 5000 if how == 2 else 0
        if how > 2:
            name = odd.choice([*headers, "Transfer-Encoding", "Expect", "Content-Type", "X", "Cookie", "Origin"])
            values = ["", "x", "-1", "0", HUGE, "chunked", "100-continue", "é", "a" * 100_000, "1_0", "+5", "0x5"]
            headers[name] = odd.choice(values)
    lines = [f"{method} {path} {version}", *(f"{name}: {value}" for name, value in headers.items()), *["A: b"] * more]
    return (ends.join(lines) + ends * 2).encode("latin-1", "replace") + body


# ------------------------------------------------------------------------------------------------------------ endpoint


@functools.cache
def _endpoint() -> Any:
    """An endpoint of the embedded model, which answers in a thread."""
    from burnish.commands.loaded import load_policy
    from burnish.core.step import Settings, Step
    from burnish.core.types import Clock, Task
    from burnish.models.template import Style, read_template
    from burnish.rollout.asking import Asker, answer, waiting
    from burnish.serve import ChatServer

    settings = Settings(max_new_tokens=2)
    style = Style(read_template("tools"))  # messages with calls are written, too
    step = Step(Clock(0, 1), load_policy("tiny", settings, "cpu", style), settings)
    server, over = ChatServer("tiny"), threading.Event()
    server.open(Asker(step, Task("question", "", {}, "served"), 0), "default")
    server.broken = ""  # type: ignore[attr-defined]  # what ended the thread

    def work() -> None:
        while not over.is_set():
            try:
                answer(server, waiting(server, 0.05), step)
            except Exception as error:  # noqa: BLE001 - the case says it
                server.broken = f"{type(error).__name__}: {error}"  # type: ignore[attr-defined]

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    atexit.register(over.set)
    return server


def serve(rng: random.Random, folder: Path) -> Case:
    """A request to the endpoint with a value, a byte or a header that is wrong."""
    told, what = changed(rng, ASKED, JSON)
    if rng.random() < 0.2:
        told["stream"] = True
    body = json.dumps(told).encode("utf-8", "surrogatepass")
    odd = [
        b"",
        b"null",
        b"[]",
        DEEP.encode(),
        b"\xff",
        b'{"messages": ' + DEEP.encode() * 3,
        body[:-9],
        damaged(rng, body),
    ]
    path, method, how = "/v1/chat/completions", "POST", rng.random()
    paths = ["/sessions/default/v1/chat/completions", "/v1/models", "/episodes", "/x", "*", "//", "/%00"]
    paths += ["/sessions/default/reward", "/v1/../reward", "/" + "a" * 70_000, "http://x/v1/models"]
    if how < 0.15:
        body, what = rng.choice(odd), "body"
    elif how < 0.25:
        path, method = rng.choice(paths), rng.choice(["POST", "GET", "PUT", "HEAD", "OPTIONS", "X" * 5000, "post"])
    seed, framed, keys = rng.randrange(2**32), 0.25 <= how < 0.4, 0.4 <= how < 0.45

    def call() -> int:
        server, dice = _endpoint(), random.Random(seed)
        port = int(server.url.rpartition(":")[2])
        headers = {"Host": f"127.0.0.1:{port}", "Authorization": f"Bearer {server.token}"}
        if keys:
            headers["Authorization"] = dice.choice([server.token, "Bearer x", "Basic eDp4", "", "Bearer é"])
        code = _exchanged(port, _framed(method, path, body, headers, dice if framed else None))
        if server.broken:
            said, server.broken = server.broken, ""
            raise Wrong(said)
        return code

    return Case("serve", [], f"{method[:20]} {path[:60]} {what}", call)


# ----------------------------------------------------------------------------------------------------------- dashboard


@functools.cache
def _dashboard(root: Path) -> Any:
    from burnish.report.api import Api
    from burnish.report.endpoint import endpoint_for
    from burnish.report.server import make_server

    place = endpoint_for("127.0.0.1", 0, None)
    server = make_server(Api(root), place)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server, place


def dashboard(rng: random.Random, folder: Path) -> Case:
    """A query of the dashboard with names, numbers and words that are odd, or an order."""
    run = finished(folder)
    names = [
        "runs",
        "metrics",
        "traces",
        "trace",
        "groups",
        "tree",
        "prompt",
        "steps",
        "definitions",
        "order",
        "x",
        "..",
        "",
    ]
    odd = [
        "",
        "%00",
        "%FF",
        "-1",
        "0",
        HUGE,
        "1e9",
        "nan",
        "%22",
        "'",
        "*",
        "(",
        "a%20AND",
        "../run",
        "%5C",
        "%ED%A0%80",
        "run",
    ]
    keys = [
        "run",
        "after",
        "event",
        "id",
        "group",
        "step",
        "limit",
        "offset",
        "order",
        "search",
        "least",
        "correct",
        "task",
        "x",
    ]
    given = {"run": "run"} | {rng.choice(keys): rng.choice(odd) for _ in range(rng.randrange(1, 5))}
    query = "&".join(f"{key}={value}" for key, value in given.items())
    query = rng.choice([query] * 9 + ["?" * 100, "&" * 5000, "=" * 100, query * 500])
    path, method = f"/api/{rng.choice(names)}?{query}", rng.choice(["GET"] * 9 + ["POST", "HEAD", "DELETE"])
    path = rng.choice([path] * 9 + ["/../x", "/app.js", "/", "/index.html?token=x", "/%2e%2e/x"])
    path = "/api/order" if method == "POST" and rng.random() < 0.8 else path
    order, what = changed(rng, {"run": "run", "action": "stop", "reason": "x"}, JSON)
    body = json.dumps(order).encode("utf-8", "surrogatepass") if method == "POST" else b""
    seed = rng.randrange(2**32)

    def call() -> int:
        server, place = _dashboard(run.parent)
        dice = random.Random(seed)
        host = f"127.0.0.1:{server.port}"
        headers = {"Host": host, "X-Burnish-Secret": place.secret, "Origin": f"http://{host}"}
        return _exchanged(server.port, _framed(method, path, body, headers, dice if dice.random() < 0.15 else None))

    return Case("dashboard", [], f"{method} {path[:150]} {what if body else ''}", call)


# -------------------------------------------------------------------------------------------------------------- judges


class _Judge(http.server.BaseHTTPRequestHandler):
    """Answers as the case says, in turn."""

    answers: list[bytes] = [b""]
    status, asked = 200, 0

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        _Judge.asked += 1
        body = _Judge.answers[_Judge.asked % len(_Judge.answers)]
        self.send_response(_Judge.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@functools.cache
def _judge() -> str:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Judge)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/v1"


SAID = [
    "",
    " ",
    "Score: 7",
    "Score: 11",
    "Score: -1",
    "Score: nan",
    "Score: 1e999",
    f"Score: {HUGE}",
    "Scores: 1",
    "Verdict: 2",
]
SAID += [
    "Scores: 1, 2",
    "Scores: 5, 5",
    "Scores: 1, 2, 3",
    "Verdict: A",
    "A",
    "B",
    "[[A]]",
    "Score: 7/10",
    "\0",
    "\ud800",
    "Yes",
]
SAID += [
    "Score:",
    "- one\n- two",
    "1 | a\n2 | b",
    "100 | x" * 5000,
    "x" * 100_000,
    "{",
    "{}",
    '{"score": 7}',
    "Score: 7\n" * 9999,
]
READ = ["Score: 7", "Score: 3", "Scores: 1, 2", "Scores: 4, 4", "Verdict: 2", "- one\n- two", "50 | short", "A", "Yes"]
REWARDS = [
    "rubric",
    "checklist",
    "principles",
    "pairwise",
    "carmo",
    "ultrafeedback",
    "codeultrafeedback",
    "multicritique",
]
REPLY: dict[str, Any] = {
    "id": "x",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Score: 7"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


def judge(rng: random.Random, folder: Path) -> Case:
    """A reward by a judge whose endpoint gives odd words, odd JSON, or a status that is none of success."""
    answers, what = [], ""
    for _ in range(3):
        made = json.loads(json.dumps(REPLY))
        made["choices"][0]["message"]["content"] = what = rng.choice([*SAID, noise(rng), *READ * 3])
        if rng.random() < 0.3:
            made, what = changed(rng, made, JSON)
        text = json.dumps(made).encode("utf-8", "surrogatepass")
        answers.append(rng.choice([text] * 8 + [b"", DEEP.encode(), text[:-4], damaged(rng, text), b"\x1f\x8b" + text]))
    status = rng.choice([200] * 9 + [400, 401, 404, 204])
    name = rng.choice(REWARDS)

    def call() -> int:
        from burnish.cli import main

        _Judge.answers, _Judge.status = answers, status
        spec = f"{name}(endpoint({_judge()}, m))"
        words = ["train", "grpo", *SMALL, "--n", "2", "--reward", spec, "--out", str(folder / "out")]
        return main(words)

    return Case("judges", [], f"{name} hears {what!r}"[:300], call)
