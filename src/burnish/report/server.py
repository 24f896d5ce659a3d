"""The dashboard's web server: static files of the package, and the API as JSON.

Other sites can neither read data nor send orders: the Host header must name this server (against DNS rebinding), CORS
is not allowed, and orders need a CSRF secret that only the dashboard's page contains. On an address other than the
loopback, every request needs a token. `report/endpoint.py` has the address and the token, `report/limits.py` the limits
on the size, duration and number of requests.
"""

from __future__ import annotations

import json
import re
import socketserver
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from burnish.report.api import Api, Query
from burnish.report.endpoint import Endpoint, require_one_address
from burnish.report.limits import (
    BODY_BYTES,
    BODY_SECONDS,
    CONNECTIONS,
    CONNECTIONS_PER_CLIENT,
    HEAD_BYTES,
    HEAD_SECONDS,
    SEND_SECONDS,
    Guesses,
    RequestReader,
    Slot,
    Slots,
    TooLarge,
    TooSlow,
)

KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
COOKIE = "burnish-token"
LONGEST_PATH, MOST_FIELDS = 4096, 32  # characters of the path with its query, fields of the query
NOT_FOUND = "there is no such page or query here"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Server(ThreadingHTTPServer):
    """HTTP server at an endpoint, with one thread per connection and a limited number of connections."""

    daemon_threads = True
    request_queue_size = CONNECTIONS

    def __init__(self, api: Api, endpoint: Endpoint) -> None:
        self.api, self.endpoint, self.guesses = api, endpoint, Guesses()
        self.slots = Slots(CONNECTIONS, CONNECTIONS if endpoint.loopback else CONNECTIONS_PER_CLIENT)
        self.slot_of: dict[Any, Slot] = {}
        self.head_seconds, self.body_seconds = HEAD_SECONDS, BODY_SECONDS
        self.address_family = endpoint.family
        super().__init__(endpoint.where, _Handler)  # type: ignore[arg-type]  # typeshed has IPv4 addresses only

    def server_bind(self) -> None:
        """Bind as TCPServer does; HTTPServer would make a DNS query for a name that is not used."""
        socketserver.TCPServer.server_bind(self)
        require_one_address(self.endpoint.host, str(self.socket.getsockname()[0]))
        self.server_name, self.server_port = self.endpoint.host, self.socket.getsockname()[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        slot = self.slots.enter(str(client_address[0]), request)
        if slot is None:
            request.settimeout(1.0)
            request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 2\r\nConnection: close\r\n\r\n")
            super().shutdown_request(request)
            return
        self.slot_of[request] = slot
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        slot = self.slot_of.pop(request, None)
        if slot is not None:
            self.slots.leave(slot)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing when a connection breaks."""


def make_server(api: Api, endpoint: Endpoint) -> Server:
    """Create a listening server; `serve_forever` starts it. Port 0 takes a free port."""
    try:
        server = Server(api, endpoint)
    except OSError as error:
        raise ValueError(
            f"cannot listen on {endpoint.host}:{endpoint.port}: {error.strerror}; choose another --port"
        ) from None
    endpoint.where = (endpoint.where[0], server.server_port, *endpoint.where[2:])  # type: ignore[assignment]  # same length
    return server


class _Refused(Exception):
    """A rejected request: the HTTP status and the error message."""

    def __init__(self, status: HTTPStatus, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


def _bad(sentence: str) -> _Refused:
    return _Refused(HTTPStatus.BAD_REQUEST, sentence)


class _Handler(BaseHTTPRequestHandler):
    server: Server
    rfile: RequestReader  # type: ignore[assignment]  # http.server only calls readline
    protocol_version = default_request_version = request_version = "HTTP/1.1"
    server_version, sys_version = "burnish", ""
    requestline = command = ""

    def setup(self) -> None:
        super().setup()
        self.rfile = RequestReader(self.connection)
        self.slot = self.server.slot_of[self.connection]

    def handle_one_request(self) -> None:
        """Read one request within its limits and answer it; errors are answered in one sentence."""
        self.server.slots.wait(self.slot, True)
        self.rfile.expect(HEAD_BYTES, self.server.head_seconds)
        try:
            super().handle_one_request()
        except TooLarge:
            self._say(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, f"a request may have {HEAD_BYTES} bytes of headers")
        except TooSlow as slow:
            self.close_connection = True
            if slow.begun:
                self._say(HTTPStatus.REQUEST_TIMEOUT, "the request did not arrive in time")

    def do_GET(self) -> None:  # noqa: N802 - called by http.server
        self._respond(self._get)

    def do_POST(self) -> None:  # noqa: N802
        self._respond(self._post)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send the errors of http.server as JSON, like all responses."""
        status = HTTPStatus(code)
        self._say(status, f"this request cannot be answered: {status.phrase.lower()}")

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing, because the dashboard polls every second."""

    def _respond(self, answer: Callable[[SplitResult], None]) -> None:
        self.server.slots.wait(self.slot, False)
        try:
            answer(self._address())
        except _Refused as refused:
            self._say(refused.status, str(refused))
        except (TooSlow, OSError):  # an incomplete body, or a client that disconnected
            raise
        except Exception as error:
            self._say(HTTPStatus.INTERNAL_SERVER_ERROR, f"the dashboard failed to answer ({type(error).__name__})")

    def _address(self) -> SplitResult:
        """Check what every request must obey, and return its path and query."""
        if len(self.path) > LONGEST_PATH:
            raise _Refused(HTTPStatus.REQUEST_URI_TOO_LONG, f"an address may have {LONGEST_PATH} characters")
        head = [self.path, *(text for pair in self.headers.items() for text in pair)]
        if any(character < " " and character != "\t" or character == "\x7f" for text in head for character in text):
            raise _bad("a request may not contain control characters")
        for name in ("Host", "Content-Length", "Origin", "X-Burnish-Secret"):
            if len(self.headers.get_all(name, [])) > 1:
                raise _bad(f"the header {name} was sent more than once")
        if self.headers.get("Host", "").lower() not in self.server.endpoint.hosts():
            raise _Refused(
                HTTPStatus.MISDIRECTED_REQUEST,
                "the Host header does not name this server; use the address that burnish ui printed",
            )
        try:
            return urlsplit(self.path)
        except ValueError:
            raise _bad("this is not an address") from None

    def _get(self, address: SplitResult) -> None:
        if self.headers.get("Transfer-Encoding") or self._length():
            raise _bad("a GET request has no body")
        try:
            query = dict(parse_qsl(address.query, max_num_fields=MOST_FIELDS))
        except ValueError:
            raise _bad(f"a query may have {MOST_FIELDS} fields") from None
        if any(character < " " or character == "\x7f" for pair in query.items() for text in pair for character in text):
            raise _bad("a query may not contain control characters")
        self._check_token(query.get("token"))
        if address.path == "/" and query.get("token") and self.server.endpoint.token:
            self._set_cookie()
        elif address.path.startswith("/api/"):
            self._ask_api(address.path.removeprefix("/api/"), query)
        else:
            self._file(address.path.removeprefix("/") or "index.html")

    def _post(self, address: SplitResult) -> None:
        endpoint = self.server.endpoint
        self._check_token(None)
        origin = self.headers.get("Origin")
        if origin is not None and origin.partition("://")[2].lower() not in endpoint.hosts():
            raise _Refused(HTTPStatus.FORBIDDEN, "only the dashboard's own page may send orders")
        if not endpoint.is_secret(self.headers.get("X-Burnish-Secret", "")):
            raise _Refused(HTTPStatus.FORBIDDEN, "this order does not have the page's secret; reload the page")
        if self.path != "/api/order":
            raise _Refused(HTTPStatus.NOT_FOUND, NOT_FOUND)
        size = self._length()
        if self.headers.get("Transfer-Encoding"):
            raise _bad("an order needs a Content-Length and may not have a Transfer-Encoding")
        if size > BODY_BYTES:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"an order may have {BODY_BYTES} bytes")
        self.rfile.expect(size, self.server.body_seconds)
        body = self.rfile.read(size)
        try:
            order = json.loads(body)
        except (ValueError, RecursionError):
            raise _bad("an order is a JSON object") from None
        if not isinstance(order, dict) or not all(isinstance(value, str) for value in order.values()):
            raise _bad("an order is a JSON object whose values are strings")
        self._answer(lambda: self.server.api.order(order))

    def _length(self) -> int:
        text = self.headers.get("Content-Length", "0")
        if not re.fullmatch("[0-9]{1,18}", text, re.ASCII):
            raise _bad("Content-Length must be a whole number")
        return int(text)

    def _check_token(self, in_query: str | None) -> None:
        """Raise _Refused if the server has a token and neither the query nor the cookie contains it."""
        endpoint = self.server.endpoint
        if not endpoint.token:
            return
        guesses = [in_query, *self._cookies()]
        if any(endpoint.is_token(guess) for guess in guesses if guess):
            self.slot.trusted = True
            return
        if any(guesses):
            self.server.guesses.wrong(self.slot.client)
        raise _Refused(
            HTTPStatus.UNAUTHORIZED, "this dashboard needs its token; use the address that burnish ui printed"
        )

    def _cookies(self) -> list[str]:
        """The value of our cookie, if the request has it; other cookies are ignored, malformed ones too."""
        pairs = (pair.strip().partition("=") for pair in ";".join(self.headers.get_all("Cookie", [])).split(";"))
        return [value.strip('"') for name, _, value in pairs if name == COOKIE][:1]

    def _set_cookie(self) -> None:
        """Move the token from the URL, where it would stay in the browser's history, into a cookie."""
        self.send_response(HTTPStatus.SEE_OTHER)
        self.send_header("Set-Cookie", f"{COOKIE}={self.server.endpoint.token}; HttpOnly; SameSite=Strict; Path=/")
        self.send_header("Location", "/")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _ask_api(self, name: str, query: Query) -> None:
        answer = self.server.api.answers.get(name)
        if answer is None:
            raise _Refused(HTTPStatus.NOT_FOUND, NOT_FOUND)
        self._answer(lambda: answer(query))

    def _answer(self, ask: Callable[[], Any]) -> None:
        try:
            value = ask()
        except ValueError as error:
            raise _bad(str(error)) from None
        self._send(HTTPStatus.OK, "application/json", json.dumps(value, ensure_ascii=False).encode())

    def _file(self, name: str) -> None:
        """Send a static file. Names are looked up in the folder's listing and never joined to a path."""
        file = {file.name: file for file in files("burnish.report.ui").iterdir()}.get(name)
        kind = KINDS.get(name.rpartition(".")[2])
        if file is None or kind is None:
            raise _Refused(HTTPStatus.NOT_FOUND, NOT_FOUND)
        body = file.read_bytes()
        if name == "index.html":
            body = body.replace(b"{{secret}}", self.server.endpoint.secret.encode())
        self._send(HTTPStatus.OK, f"{kind}; charset=utf-8", body)

    def _say(self, status: HTTPStatus, sentence: str) -> None:
        self.close_connection = True  # an unread body would be parsed as the next request
        self._send(status, "application/json", json.dumps({"error": sentence}).encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes) -> None:
        self.connection.settimeout(SEND_SECONDS)
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **HEADERS}.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
