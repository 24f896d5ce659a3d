"""The dashboard's web server: static files of the package, and the API as JSON.

Other sites can neither read data nor send orders: the Host header must name this server (against DNS rebinding), CORS
is not allowed, and orders need a CSRF secret that only the dashboard's page contains. On an address other than the
loopback, every request needs a token. `report/endpoint.py` has the address and the token, `util/http_server.py` the
limits on the size, duration and number of requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from importlib.resources import files
from urllib.parse import SplitResult, parse_qsl, urlsplit

from burnish.report.api import Api, Query
from burnish.report.endpoint import Endpoint, require_one_address
from burnish.util.http_limits import Limits, room_for_connections
from burnish.util.http_message import JSON, Refused, Reply, Request, as_json, bad
from burnish.util.http_server import HttpServer, bound
from burnish.util.untrusted import parse_json

BODY_BYTES, BODY_SECONDS = 10_000, 10.0  # of an order
CONNECTIONS, CONNECTIONS_PER_CLIENT = 64, 16
KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
COOKIE = "burnish-token"
MOST_FIELDS = 32  # of a query
NOT_FOUND = "there is no such page or query here"
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def make_server(api: Api, endpoint: Endpoint) -> HttpServer:
    """Create a listening server; `serve_forever` starts it. Port 0 takes a free port."""
    try:
        listener = bound(endpoint.where, endpoint.family)
    except OSError as error:
        raise ValueError(
            f"cannot listen on {endpoint.host}:{endpoint.port}: {error.strerror}; choose another --port"
        ) from None
    try:
        require_one_address(endpoint.host, str(listener.getsockname()[0]))
    except ValueError:
        listener.close()
        raise
    most = room_for_connections(CONNECTIONS)
    per_client = most if endpoint.loopback else min(most, CONNECTIONS_PER_CLIENT)
    limits = Limits(BODY_BYTES, BODY_SECONDS, connections=most, strangers=most, per_client=per_client, working=most)
    server = HttpServer(Dashboard(api, endpoint), listener, limits)
    endpoint.where = (endpoint.where[0], server.port, *endpoint.where[2:])
    return server


class Dashboard:
    """What the dashboard's server answers."""

    name, headers = "dashboard", HEADERS

    def __init__(self, api: Api, endpoint: Endpoint) -> None:
        self.api, self.endpoint = api, endpoint

    def hosts(self) -> set[str]:
        return self.endpoint.hosts()

    def error(self, status: HTTPStatus, sentence: str) -> dict[str, object]:
        return {"error": sentence}

    def admit(self, request: Request) -> None:
        """Refuse a request without the token; an order also without the page's secret, or of another page."""
        address, query = _split(request)
        self._check_token(request, query.get("token") if request.method == "GET" else None)
        if request.method == "GET":
            return
        endpoint, origin = self.endpoint, request.header("Origin")
        if origin and origin.partition("://")[2].lower() not in endpoint.hosts():
            raise Refused(HTTPStatus.FORBIDDEN, "only the dashboard's own page may send orders")
        if not endpoint.is_secret(request.header("X-Burnish-Secret")):
            raise Refused(HTTPStatus.FORBIDDEN, "this order does not have the page's secret; reload the page")
        if request.target != "/api/order":
            raise Refused(HTTPStatus.NOT_FOUND, NOT_FOUND)

    def answer(self, request: Request, reply: Reply) -> None:
        address, query = _split(request)
        if request.method == "POST":
            self._send(reply, lambda: as_json(self.api.order(_order(request.body))))
        elif address.path == "/" and query.get("token") and self.endpoint.token:
            self._set_cookie(reply)
        elif address.path.startswith("/api/"):
            self._send(reply, lambda: self.api.ask(address.path.removeprefix("/api/"), query))
        else:
            self._file(reply, address.path.removeprefix("/") or "index.html")

    def _check_token(self, request: Request, in_query: str | None) -> None:
        """Raise Refused if the server has a token and neither the query nor the cookie contains it."""
        endpoint = self.endpoint
        guesses = [guess for guess in (in_query, *_cookies(request)) if guess]
        if endpoint.token and not any(map(endpoint.is_token, guesses)):
            why = "this dashboard needs its token; use the address that burnish ui printed"
            raise Refused(HTTPStatus.UNAUTHORIZED, why, guess=bool(guesses))

    def _set_cookie(self, reply: Reply) -> None:
        """Move the token from the URL, where it would stay in the browser's history, into a cookie."""
        cookie = f"{COOKIE}={self.endpoint.token}; HttpOnly; SameSite=Strict; Path=/"
        reply.send(b"", "text/plain", HTTPStatus.SEE_OTHER, {"Set-Cookie": cookie, "Location": "/"})

    def _send(self, reply: Reply, ask: Callable[[], bytes | None]) -> None:
        try:
            answer = ask()
        except ValueError as error:
            raise bad(str(error)) from None
        if answer is None:
            raise Refused(HTTPStatus.NOT_FOUND, NOT_FOUND)
        reply.send(answer, JSON)

    def _file(self, reply: Reply, name: str) -> None:
        """Send a static file. Names are looked up in the folder's listing and never joined to a path."""
        file = {file.name: file for file in files("burnish.report.ui").iterdir()}.get(name)
        kind = KINDS.get(name.rpartition(".")[2])
        if file is None or kind is None:
            raise Refused(HTTPStatus.NOT_FOUND, NOT_FOUND)
        body = file.read_bytes()
        if name == "index.html":
            body = body.replace(b"{{secret}}", self.endpoint.secret.encode())
        reply.send(body, f"{kind}; charset=utf-8")


def _split(request: Request) -> tuple[SplitResult, Query]:
    """The path and the query of a request."""
    try:
        address = urlsplit(request.target)
    except ValueError:
        raise bad("this is not an address") from None
    try:
        query = dict(parse_qsl(address.query, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise bad(f"a query may have {MOST_FIELDS} fields") from None
    if any(character < " " or character == "\x7f" for pair in query.items() for text in pair for character in text):
        raise bad("a query may not contain control characters")
    return address, query


def _cookies(request: Request) -> list[str]:
    """The value of our cookie, if the request has it; other cookies are ignored, malformed ones too."""
    pairs = (pair.strip().partition("=") for pair in ";".join(request.headers.get("cookie", ())).split(";"))
    return [value.strip('"') for name, _, value in pairs if name == COOKIE][:1]


def _order(body: bytes) -> dict[str, str]:
    try:
        order = parse_json(body, largest=BODY_BYTES)
    except ValueError as error:
        raise ValueError(f"an order is a JSON object, but {error}") from None
    if not isinstance(order, dict) or not all(isinstance(value, str) for value in order.values()):
        raise ValueError("an order is a JSON object whose values are strings")
    return order
