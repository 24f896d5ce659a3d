"""The HTTP server: it reads requests, leaves each as a Question for the owner of the model, and sends the answer.

It listens on the loopback address only, and every request needs the token, as the API key that clients send; limits on
clients are those of util/http_server.py. Paths:

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
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from burnish.serve.protocol import Answered, Asked, BadRequest, Failure, chunks, completion, read_request
from burnish.util.http_limits import Limits, room_for_connections
from burnish.util.http_message import Refused, Reply, Request
from burnish.util.http_server import HttpServer, bound
from burnish.util.untrusted import parse_json

HOST = "127.0.0.1"
LARGEST, BODY_SECONDS = 4 << 20, 60.0  # bytes of a request's body, and seconds until all of it is there
CONNECTIONS = 4096  # open ones, at most: an agent of many episodes keeps one for each of its calls
DEFAULT = "default"  # the session of requests that name none
SECONDS = 600.0  # that a question may wait for its answer
# BASE_URL ends in v1, and what pays may be asked for beside it or below it.
_SESSION = r"/(?:sessions/([A-Za-z0-9_-]{1,64})/)?"
_PATH = re.compile(_SESSION + r"(?:(v1/chat/completions|v1/models)|(?:v1/(?:\.\./)?)?(reward|end))")


@dataclass(eq=False)
class Question:
    """A request that waits for its answer, or for the reason why there is none."""

    session: Session
    asked: Asked
    answer: queue.Queue[Answered | Failure] = field(default_factory=lambda: queue.Queue(1))


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
            listener = bound((HOST, port), socket.AF_INET)
        except OSError as error:
            raise ValueError(f"port {port} cannot be used ({error.strerror}); pass --port 0 for a free one") from None
        most = room_for_connections(CONNECTIONS)
        limits = Limits(LARGEST, BODY_SECONDS, connections=most, strangers=most // 2, per_client=most, working=most)
        self._http = HttpServer(_Endpoint(self, listener.getsockname()[1]), listener, limits)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True, name="chat server")
        self._thread.start()

    @property
    def url(self) -> str:
        """The address, without a path."""
        return f"http://{HOST}:{self._http.port}"

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
        self._thread.join()
        self._http.server_close()


class _Endpoint:
    """What the server of a ChatServer answers."""

    name = "endpoint"
    headers: Mapping[str, str] = {}

    def __init__(self, owner: ChatServer, port: int) -> None:
        self.owner = owner
        self._hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        if port == 80:  # clients leave it out
            self._hosts |= {HOST, "localhost"}

    def hosts(self) -> set[str]:
        return self._hosts

    def error(self, status: HTTPStatus, sentence: str) -> dict[str, Any]:
        """An error in the form of the OpenAI protocol."""
        kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
        return {"error": {"message": sentence, "type": kind, "code": int(status)}}

    def admit(self, request: Request) -> None:
        """Refuse a request without the API key."""
        given = request.header("Authorization").removeprefix("Bearer ").strip()
        if not hmac.compare_digest(given.encode(), self.owner.token.encode()):
            why = "the API key is wrong; use the one that the server printed"
            raise Refused(HTTPStatus.UNAUTHORIZED, why, guess=bool(given))

    def answer(self, request: Request, reply: Reply) -> None:
        owner, path = self.owner, request.target.partition("?")[0]
        if path == "/episodes" and request.method == "POST" and owner.offer is not None:
            return reply.send_json(owner.offer())
        match = _PATH.fullmatch(path)
        session = owner.sessions.get(match[1] or DEFAULT) if match else None
        if match is None or session is None:
            raise _not_found("there is no such path or session, or the session has ended")
        what = match[2] or match[3]
        try:
            if request.method == "POST":
                return self._post(what, session, request, reply)
        except BadRequest as error:
            raise Refused(HTTPStatus.BAD_REQUEST, str(error)) from None
        if what != "v1/models":
            raise _not_found("there is nothing to get at this path")
        return reply.send_json({"object": "list", "data": [{"id": owner.model, "object": "model"}]})

    def _post(self, what: str, session: Session, request: Request, reply: Reply) -> None:
        if what in ("reward", "end"):
            if session.id == DEFAULT:
                raise _not_found(f"{what} is for an episode: post it to the base URL of one")
            session.reward = _reward(request.body) if what == "reward" else session.reward
            session.ended.set()
            return reply.send_json({"ok": True})
        if what != "v1/chat/completions":
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "this path takes no POST")
        if session.ended.is_set():
            raise _not_found("the session has ended: its reward was posted, or its end")
        question = Question(session, read_request(request.body))
        self.owner.questions.put(question)
        try:
            answered = question.answer.get(timeout=self.owner.seconds)
        except queue.Empty:
            why = f"no answer within {self.owner.seconds:g} s"
            raise Refused(HTTPStatus.GATEWAY_TIMEOUT, why) from None
        if isinstance(answered, Failure):
            raise Refused(HTTPStatus(answered.status), answered.why)
        if not question.asked.stream:
            return reply.send_json(completion(answered, question.asked))
        events = [json.dumps(chunk).encode() for chunk in chunks(answered, question.asked)]
        return reply.stream((b"data: " + event + b"\n\n" for event in (*events, b"[DONE]")), "text/event-stream")


def _not_found(why: str) -> Refused:
    return Refused(HTTPStatus.NOT_FOUND, why)


def _reward(body: bytes) -> float:
    try:
        given = parse_json(body)
        reward = float(given["value"] if isinstance(given, dict) else "")
    except (ValueError, TypeError, KeyError, OverflowError):
        raise BadRequest('a reward is {"value": number}') from None
    if not abs(reward) < float("inf"):
        raise BadRequest("a reward must be a finite number")
    return reward
