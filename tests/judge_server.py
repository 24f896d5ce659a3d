"""A real HTTP server on 127.0.0.1 that speaks the OpenAI protocol, with every misbehaviour that a client must bear."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Said = str | dict[str, Any]


class JudgeServer:
    """Counts requests, records them, and answers by `reply(body)`: text, or a whole JSON object.

    faults: what goes wrong with the first requests, one after the other: an HTTP status, "malformed", "list", "empty",
    "hang", "drip", "endless", "close"; then all is well. always: a fault of every request.
    """

    def __init__(
        self, reply: Callable[[dict[str, Any]], Said], faults: list[Any] | None = None, always: Any = None
    ) -> None:
        self.reply, self.faults, self.always = reply, list(faults or []), always
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.at_once = self.most_at_once = 0
        self.latency = 0.0
        self.lock = threading.Lock()
        self.over = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with outer.lock:
                    outer.requests.append({**body, "path": self.path})
                    outer.headers.append(dict(self.headers))
                    outer.at_once += 1
                    outer.most_at_once = max(outer.most_at_once, outer.at_once)
                    fault = outer.faults.pop(0) if outer.faults else outer.always
                time.sleep(outer.latency)
                with outer.lock:
                    outer.at_once -= 1  # now: a client that has its answer asks the next question at once
                with contextlib.suppress(OSError):  # the client may have gone
                    self.answer(body, fault)

            def answer(self, body: dict[str, Any], fault: Any) -> None:
                if isinstance(fault, int):
                    said = json.dumps({"error": {"message": f"no: {dict(self.headers).get('Authorization')}"}})
                    self.whole(fault, said.encode())
                elif fault == "malformed":
                    self.whole(200, b'{"choices": [{"message"')
                elif fault == "list":
                    self.whole(200, b"[1, 2]")
                elif fault == "empty":
                    self.whole(200, b'{"choices": []}')
                elif fault == "hang":
                    outer.over.wait(20)
                elif fault == "drip":
                    self.wfile.write(b"HTTP/1.1 200 OK\r\n")
                    while not outer.over.wait(0.05):
                        self.wfile.write(b"X-Slow: 1\r\n"[:1])
                        self.wfile.flush()
                elif fault == "endless":
                    self.send_response(200)
                    self.end_headers()
                    while not outer.over.is_set():
                        self.wfile.write(b" " * 65536)
                elif fault == "close":
                    self.connection.close()
                else:
                    said = outer.reply(body)
                    found = said if isinstance(said, dict) else completion(said)
                    self.whole(200, json.dumps(found).encode())

            def whole(self, status: int, content: bytes) -> None:
                self.send_response(status)
                if status == 429:
                    self.send_header("Retry-After", "0")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/v1"

    def end(self) -> None:
        self.over.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join(10)


def completion(text: str, tokens: int = 10) -> dict[str, Any]:
    """A reply of the protocol."""
    return {"choices": [{"message": {"role": "assistant", "content": text}}], "usage": {"total_tokens": tokens}}


@contextmanager
def serving(reply: Callable[[dict[str, Any]], Said], **how: Any) -> Iterator[JudgeServer]:
    """A server for the time of a block."""
    server = JudgeServer(reply, **how)
    try:
        yield server
    finally:
        server.end()


def prompt_of(body: dict[str, Any]) -> str:
    """The question in a request."""
    return str(body["messages"][-1]["content"])
