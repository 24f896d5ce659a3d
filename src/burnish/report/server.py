"""The dashboard's web server: files of the package, answers of the API as JSON, on this machine alone unless asked otherwise.

A page of another site must neither read nor order: the Host header must name this server (a foreign name that was made to
point here does not), no other origin is answered, and an order needs a secret that only our own page was given. Bound to
another address than the loopback, every request needs a token.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import secrets
from dataclasses import dataclass, field
from http import HTTPStatus
from http.cookies import SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from burnish.report.api import Api

KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
COOKIE = "burnish-token"
LONGEST_BODY = 10_000
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


@dataclass
class Door:
    """Who may come in.

    token   what every request must show; empty on the loopback, where none is needed
    secret  what an order must show: our own page carries it
    """

    host: str
    port: int
    token: str = ""
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    def hosts(self) -> set[str]:
        """What a Host header may say."""
        names = {self.host, "localhost", "127.0.0.1", "[::1]"} if is_loopback(self.host) else {self.host}
        names = {f"[{name}]" if ":" in name and not name.startswith("[") else name for name in names}
        return names | {f"{name}:{self.port}" for name in names}

    def url(self) -> str:
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{self.port}/" + (f"?token={self.token}" if self.token else "")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def door_for(host: str, port: int, token: str | None) -> Door:
    """The door for an address. Every address at once is refused; beyond the loopback there is always a token."""
    try:
        everywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        everywhere = host in ("", "*")
    if everywhere:
        raise ValueError(
            f"--host {host or '(empty)'} opens the dashboard on every network at once; name the one address it should have"
        )
    if token is not None and len(token) < 16:
        raise ValueError(
            "--token is too short to keep anybody out; use at least 16 characters, or leave it out to have one made"
        )
    if is_loopback(host):
        return Door(host, port, token or "")
    return Door(host, port, token or secrets.token_urlsafe(24))


def make_server(api: Api, door: Door) -> ThreadingHTTPServer:
    """A server that listens; `serve_forever` begins to answer. Port 0 takes a free one."""

    class Handler(_Handler):
        pass

    Handler.api, Handler.door = api, door
    try:
        server = ThreadingHTTPServer((door.host, door.port), Handler)
    except OSError as error:
        raise ValueError(f"cannot listen on {door.host}:{door.port}: {error.strerror}; choose another --port") from None
    server.daemon_threads = True
    door.port = server.server_address[1]
    return server


class _Handler(BaseHTTPRequestHandler):
    api: Api
    door: Door
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "burnish", ""
    timeout = 30

    def do_GET(self) -> None:  # noqa: N802 - the name that the library calls
        address = urlsplit(self.path)
        query = dict(parse_qsl(address.query))
        if not self._welcome(query):
            return
        if address.path == "/" and query.get("token") and self.door.token:
            self._take_cookie()
        elif address.path.startswith("/api/"):
            answer = self.api.answers.get(address.path.removeprefix("/api/"))
            self._answer(lambda: answer(query)) if answer else self._say(
                HTTPStatus.NOT_FOUND, "there is no such thing here"
            )
        else:
            self._file(address.path.strip("/") or "index.html")

    def do_POST(self) -> None:  # noqa: N802
        if not self._welcome({}):
            return
        origin = self.headers.get("Origin")
        if origin is not None and urlsplit(origin).netloc not in self.door.hosts():
            self._say(HTTPStatus.FORBIDDEN, "orders come from the dashboard's own page")
            return
        shown = self.headers.get("X-Burnish-Secret", "")
        if not hmac.compare_digest(shown.encode(), self.door.secret.encode()):
            self._say(HTTPStatus.FORBIDDEN, "this order does not carry the page's secret; reload the page")
            return
        size = int(self.headers.get("Content-Length") or 0)
        if self.path != "/api/order" or size > LONGEST_BODY:
            self._say(HTTPStatus.NOT_FOUND, "there is no such thing here")
            return
        body = self.rfile.read(size)
        self._answer(lambda: self.api.order({str(key): str(value) for key, value in json.loads(body).items()}))

    def _welcome(self, query: dict[str, str]) -> bool:
        if self.headers.get("Host", "") not in self.door.hosts():
            self._say(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this server does not go by that name; use the address that burnish ui printed",
            )
            return False
        if not self.door.token:
            return True
        cookie = SimpleCookie(self.headers.get("Cookie", "")).get(COOKIE)
        for shown in (query.get("token", ""), cookie.value if cookie else ""):
            if hmac.compare_digest(shown.encode(), self.door.token.encode()):
                return True
        self._say(HTTPStatus.UNAUTHORIZED, "this dashboard needs its token; use the address that burnish ui printed")
        return False

    def _take_cookie(self) -> None:
        """The token moves from the address, where it would stay in the history, into a cookie."""
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Set-Cookie", f"{COOKIE}={self.door.token}; HttpOnly; SameSite=Strict; Path=/")
        self.send_header("Location", "/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _answer(self, ask: Any) -> None:
        try:
            value = ask()
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            self._say(HTTPStatus.BAD_REQUEST, str(error))
            return
        self._send(HTTPStatus.OK, "application/json", json.dumps(value, ensure_ascii=False).encode())

    def _file(self, name: str) -> None:
        kind = KINDS.get(name.rpartition(".")[2])
        file = files("burnish.report.ui") / name
        if "/" in name or "\\" in name or name.startswith(".") or kind is None or not file.is_file():
            self._say(HTTPStatus.NOT_FOUND, "there is no such thing here")
            return
        body = file.read_bytes()
        if name == "index.html":
            body = body.replace(b"{{secret}}", self.door.secret.encode())
        self._send(HTTPStatus.OK, f"{kind}; charset=utf-8", body)

    def _say(self, status: HTTPStatus, sentence: str) -> None:
        self.close_connection = True  # a body that was not read would be taken for the next request
        self._send(status, "application/json", json.dumps({"error": sentence}).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **HEADERS}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """A dashboard that asks every second has nothing to log."""
