"""The dashboard's server on a free port, and clients that ask it anything, byte by byte where they must."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from burnish.report.api import Api
from burnish.report.endpoint import Endpoint
from burnish.report.server import make_server
from burnish.util.http_server import HttpServer


class Browser:
    """Asks a server as a browser would, with any headers."""

    def __init__(self, endpoint: Endpoint, server: HttpServer) -> None:
        self.endpoint, self.server = endpoint, server

    def ask(
        self, path: str, method: str = "GET", body: str | None = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        host = f"[{self.endpoint.where[0]}]" if ":" in self.endpoint.where[0] else self.endpoint.where[0]
        line = http.client.HTTPConnection(self.endpoint.where[0], self.endpoint.port, timeout=10)
        sent = {
            "Host": f"{host}:{self.endpoint.port}",
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        line.request(method, path, body=body, headers=sent)
        answer = line.getresponse()
        text = answer.read().decode()
        found = json.loads(text) if "json" in answer.headers["Content-Type"] else text
        line.close()
        return answer.status, found, dict(answer.headers)

    def connect(self) -> socket.socket:
        return socket.create_connection(self.endpoint.where[:2], timeout=20)

    def raw(self, sent: bytes) -> tuple[int, Any]:
        """The status and the JSON that answer these bytes; HOST in them stands for the right Host header."""
        host = b"Host: 127.0.0.1:%d" % self.endpoint.port
        with self.connect() as line:
            line.sendall(sent.replace(b"HOST", host))
            return answer(line)


def answer(line: socket.socket) -> tuple[int, Any]:
    """The status and the JSON of the one answer on a connection that the server then closes."""
    got = b""
    while more := line.recv(65536):
        got += more
    head, _, body = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1."), got[:200]
    return int(head.split()[1]), json.loads(body) if body else None


def served(root: Path, endpoint: Endpoint) -> Iterator[Browser]:
    server = make_server(Api(root), endpoint)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield Browser(endpoint, server)
    server.shutdown()
    server.server_close()
    thread.join(10)
