"""The HTTP server: it reads requests, leaves each as a Question for the owner of the model, and sends the answer.

It listens on the loopback address only, and every request needs the token, as the API key that clients send. Paths:

    POST /v1/chat/completions                       a completion, for the default session
    POST /sessions/ID/v1/chat/completions           one for a session (an episode): clients get this as their base URL
    POST /sessions/ID/reward                        {"value": 1.0}: the reward of the session
    POST /sessions/ID/end                           the session is over, without a reward
    POST /episodes                                  the next episode for a program that pulls them (serve/pulled.py)
    GET  /v1/models   /sessions/ID/v1/models        the name of the model
"""

from __future__ import annotations

import hmac
import json
import queue
import re
import secrets
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from burnish.serve.protocol import Answered, Asked, BadRequest, chunks, completion, read_request

HOST = "127.0.0.1"
LARGEST = 4 << 20  # bytes of a request's body
DRAINED = 64 << 10  # bytes that are read of a refused request's body
DEFAULT = "default"  # the session of requests that name none
SECONDS = 600.0  # that a question may wait for its answer
# BASE_URL ends in v1, and what pays may be asked for beside it or below it.
_SESSION = r"/(?:sessions/([A-Za-z0-9_-]{1,64})/)?"
_PATH = re.compile(_SESSION + r"(?:(v1/chat/completions|v1/models)|(?:v1/(?:\.\./)?)?(reward|end))")


@dataclass(eq=False)
class Question:
    """A request that waits for its answer: an Answered, or the reason why there is none."""

    session: Session
    asked: Asked
    answer: queue.Queue[Answered | str] = field(default_factory=lambda: queue.Queue(1))


@dataclass(eq=False)
class Session:
    """One client of the server: an episode. reward: what was posted for it, if anything. ended: once it is over.

    begun: when its client began to work on it, in seconds of time.monotonic; None where none has
    """

    id: str
    state: Any = None
    reward: float | None = None
    begun: float | None = None
    ended: threading.Event = field(default_factory=threading.Event)


class ChatServer:
    """An endpoint on the loopback address. questions: those that wait. Requests for unknown sessions are refused.

    token: the API key that clients need; by default a new one. offer: gives a client the next episode
    """

    def __init__(
        self, model: str = "burnish", port: int = 0, seconds: float = SECONDS, token: str | None = None
    ) -> None:
        self.model, self.seconds, self.token = model, seconds, token or secrets.token_urlsafe(24)
        self.offer: Callable[[], dict[str, Any]] | None = None
        self.questions: queue.Queue[Question] = queue.Queue()
        self.sessions: dict[str, Session] = {}
        try:
            self._http = _Http((HOST, port), self)
        except OSError as error:
            raise ValueError(f"port {port} cannot be used ({error.strerror}); pass --port 0 for a free one") from None
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True, name="chat server")
        self._thread.start()

    @property
    def url(self) -> str:
        """The address, without a path."""
        return f"http://{HOST}:{self._http.server_address[1]}"

    def open(self, state: Any = None, name: str | None = None) -> Session:
        """A new session."""
        session = Session(name or secrets.token_urlsafe(12), state)
        self.sessions[session.id] = session
        return session

    def base_url(self, session: Session) -> str:
        """What a client of the session is given as its base URL."""
        return f"{self.url}/sessions/{session.id}/v1"

    def close(self, session: Session) -> None:
        """End a session: its later requests are refused."""
        self.sessions.pop(session.id, None)

    def end(self) -> None:
        """Stop listening."""
        self._http.shutdown()
        self._http.server_close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = (
        1024  # connections that wait to be accepted; a client that finds no place tries again after 1 s
    )

    def __init__(self, where: tuple[str, int], owner: ChatServer) -> None:
        self.owner = owner
        super().__init__(where, _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone away is no news; anything else is printed as usual."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60.0  # seconds that a client may take to send its request
    server: _Http
    body_read = False  # whether the body of the present request has been read

    def parse_request(self) -> bool:
        """Each request of a connection begins with its own body unread."""
        self.body_read = False
        return super().parse_request()

    def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
        self._guarded(self._models)

    def do_POST(self) -> None:  # noqa: N802
        self._guarded(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed: bodies and keys do not belong into a terminal."""

    def _guarded(self, answer: Callable[[str, Session], None]) -> None:
        """Check host, token and path, then answer; what goes wrong is answered in the protocol's form."""
        owner = self.server.owner
        name = (self.headers.get("Host") or "").rpartition(":")[0] or self.headers.get("Host") or ""
        if name not in (HOST, "localhost", "[::1]"):
            return self._fail(HTTPStatus.FORBIDDEN, "the Host header does not name this server")
        given = (self.headers.get("Authorization") or "").removeprefix("Bearer ").strip()
        if not hmac.compare_digest(given.encode(), owner.token.encode()):
            return self._fail(HTTPStatus.UNAUTHORIZED, "the API key is wrong; use the one that the server printed")
        try:
            if self.path == "/episodes" and self.command == "POST" and owner.offer is not None:
                if "Content-Length" in self.headers:  # it needs no body
                    self._body()
                return self._send(owner.offer())
            found = _PATH.fullmatch(self.path.partition("?")[0])
            session = owner.sessions.get(found[1] or DEFAULT) if found else None
            if found is None or session is None:
                return self._fail(HTTPStatus.NOT_FOUND, "there is no such path or session, or the session has ended")
            return answer(found[2] or found[3], session)
        except BadRequest as error:
            return self._fail(HTTPStatus.BAD_REQUEST, str(error))

    def _models(self, what: str, session: Session) -> None:
        if what != "v1/models":
            return self._fail(HTTPStatus.NOT_FOUND, "there is nothing to get at this path")
        return self._send({"object": "list", "data": [{"id": self.server.owner.model, "object": "model"}]})

    def _post(self, what: str, session: Session) -> None:
        body = self._body()
        if what in ("reward", "end"):
            if session.id == DEFAULT:
                return self._fail(HTTPStatus.NOT_FOUND, f"{what} is for an episode: post it to the base URL of one")
            session.reward = _reward(body) if what == "reward" else session.reward
            session.ended.set()
            return self._send({"ok": True})
        if what != "v1/chat/completions":
            return self._fail(HTTPStatus.METHOD_NOT_ALLOWED, "this path takes no POST")
        if session.ended.is_set():
            return self._fail(HTTPStatus.NOT_FOUND, "the session has ended: its reward was posted, or its end")
        question = Question(session, read_request(body))
        self.server.owner.questions.put(question)
        try:
            answered = question.answer.get(timeout=self.server.owner.seconds)
        except queue.Empty:
            return self._fail(HTTPStatus.GATEWAY_TIMEOUT, f"no answer within {self.server.owner.seconds:g} s")
        if isinstance(answered, str):
            return self._fail(HTTPStatus.BAD_REQUEST, answered)
        if question.asked.stream:
            return self._stream(answered, question.asked)
        return self._send(completion(answered, question.asked))

    def _body(self) -> bytes:
        try:
            size = int(self.headers.get("Content-Length") or "")
        except ValueError:
            raise BadRequest("the request has no Content-Length") from None
        if not 0 <= size <= LARGEST:
            raise BadRequest(f"the body has {size} bytes; at most {LARGEST} are read")
        body = self.rfile.read(size)
        self.body_read = True
        return body

    def _stream(self, answered: Answered, asked: Asked) -> None:
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for chunk in chunks(answered, asked):
            self.wfile.write(b"data: " + json.dumps(chunk).encode() + b"\n\n")
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _send(self, content: dict[str, Any], status: HTTPStatus = HTTPStatus.OK) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:  # or the client sends its next request into a connection that is being closed
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def _fail(self, status: HTTPStatus, why: str) -> None:
        if self.command == "POST" and not self.body_read:
            # A body that is left unread would be taken for the next request; and closing a connection with unread
            # bytes resets it, so that the client may never see this answer.
            size = self.headers.get("Content-Length") or ""
            self.rfile.read(min(int(size), DRAINED) if size.isdecimal() else 0)
            self.close_connection = True
        self._send({"error": {"message": why, "type": "invalid_request_error", "code": int(status)}}, status)


def _reward(body: bytes) -> float:
    try:
        value = json.loads(body)["value"]
        reward = float(value)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        raise BadRequest('a reward is {"value": number}') from None
    if not abs(reward) < float("inf"):
        raise BadRequest("a reward must be a finite number")
    return reward
