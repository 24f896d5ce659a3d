"""The HTTP server: it reads requests, leaves each as a Question for the owner of the model, and sends the answer.

It listens on the loopback address unless another is named, and every request needs the token, as the API key that
clients send; limits on clients are those of util/http_server.py. Paths, for the default session or, below
/sessions/ID, for a session (an episode), whose clients get that as their base URL:

    POST /v1/chat/completions   a chat completion (serve/protocol.py)
    POST /v1/responses          the same by the Responses API (serve/responses.py)
    POST /v1/messages           the same by Anthropic's Messages API (serve/messages.py)
    POST /v1/completions        a completion of text or tokens (serve/completions.py)
    GET  /v1/models             the name of the model
    POST /sessions/ID/reward    {"value": 1.0}: the reward of the session, which ends it; with "id" that of one reply
    POST /sessions/ID/end       the session is over, without a reward
    POST /episodes              the next episode for a program that pulls them (serve/pulled.py)
"""

from __future__ import annotations

import hmac
import queue
import re
import secrets
import socket
import threading
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from ipaddress import IPv4Address
from itertools import chain
from typing import Any

from burnish.serve.asked import Answered, Asked, BadRequest, Failure, Piece
from burnish.serve.protocols import PROTOCOLS
from burnish.serve.responses import Kept
from burnish.util.http_limits import Limits, room_for_connections
from burnish.util.http_message import Refused, Reply, Request
from burnish.util.http_server import HttpServer, bound
from burnish.util.untrusted import parse_json

HOST = "127.0.0.1"
EVERYWHERE = (str(IPv4Address(0)), "")  # all addresses of this machine
LARGEST, BODY_SECONDS = 4 << 20, 60.0  # bytes of a request's body, and seconds until all of it is there
CONNECTIONS = 4096  # open ones, at most: an agent of many episodes keeps one for each of its calls
DEFAULT = "default"  # the session of requests that name none
SECONDS = 600.0  # that a question may wait for its answer
# BASE_URL ends in v1, and what pays may be asked for beside it or below it.
_SESSION = r"/(?:sessions/([A-Za-z0-9_-]{1,64})/)?"
_ASKS = "chat/completions|completions|responses|messages|models"  # clients of Anthropic add v1 to their base URL
_PATH = re.compile(_SESSION + rf"(?:v1/(?:v1/)?({_ASKS})|(?:v1/(?:\.\./)?)?(reward|end))")


@dataclass(eq=False)
class Question:
    """A request that waits for its answer, or for the reason why there is none."""

    session: Session
    asked: Asked
    answer: queue.Queue[Piece | Answered | Failure] = field(default_factory=queue.Queue)

    def items(self, seconds: float) -> Iterator[Piece | Answered]:
        """What arrives, until all replies are there; raises Refused where one has no answer."""
        answered = 0
        while answered < self.asked.n:
            try:
                item = self.answer.get(timeout=seconds)
            except queue.Empty:
                raise Refused(HTTPStatus.GATEWAY_TIMEOUT, f"no answer within {seconds:g} s") from None
            if isinstance(item, Failure):
                raise Refused(HTTPStatus(item.status), item.why)
            answered += isinstance(item, Answered)
            yield item


@dataclass(eq=False)
class Session:
    """One client of the server: an episode. reward: what was posted for it, if anything. ended: once it is over.

    paid: what was posted for single replies, by their ids; kept: answers that a request can go on from, by id
    begun: when its client began to work on it, in seconds of time.monotonic; None where none has
    """

    id: str
    state: Any = None
    reward: float | None = None
    begun: float | None = None
    ended: threading.Event = field(default_factory=threading.Event)
    paid: dict[str, float] = field(default_factory=dict)
    kept: Kept = field(default_factory=dict)


class ChatServer:
    """An endpoint. questions: those that wait. Requests for unknown sessions are refused.

    token  the API key that clients need; by default a new one
    host   the address that it listens on; strict: only requests for the model by its name are answered
    offer  gives a client the next episode
    """

    def __init__(
        self,
        model: str = "burnish",
        port: int = 0,
        seconds: float = SECONDS,
        token: str | None = None,
        host: str = HOST,
        strict: bool = False,
    ) -> None:
        self.model, self.seconds, self.token = model, seconds, token or secrets.token_urlsafe(24)
        self.host, self.strict = host, strict
        self.offer: Callable[[], dict[str, Any]] | None = None
        self.questions: queue.Queue[Question] = queue.Queue()
        self.sessions: dict[str, Session] = {}
        try:
            listener = bound((host, port), socket.AF_INET)
        except OSError as error:
            where = f"port {port}" if host == HOST else f"port {port} of {host!r}"
            raise ValueError(f"{where} cannot be used ({error.strerror}); pass --port 0 for a free one") from None
        most = room_for_connections(CONNECTIONS)
        limits = Limits(LARGEST, BODY_SECONDS, connections=most, strangers=most // 2, per_client=most, working=most)
        self._http = HttpServer(_Endpoint(self, listener.getsockname()[1]), listener, limits)
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True, name="chat server")
        self._thread.start()

    @property
    def url(self) -> str:
        """The address, without a path."""
        named = HOST if self.host == HOST else machine() if self.host in EVERYWHERE else self.host
        return f"http://{named}:{self._http.port}"

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


class _Any:
    """Every name: from another machine or a container a server has names that it does not know. The token decides."""

    def __contains__(self, name: object) -> bool:
        return True


def machine() -> str:
    """An address of this machine that others may reach."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent: the system only chooses the way there
            return str(probe.getsockname()[0])
        except OSError:
            return HOST


class _Endpoint:
    """What the server of a ChatServer answers."""

    name = "endpoint"
    headers: Mapping[str, str] = {}

    def __init__(self, owner: ChatServer, port: int) -> None:
        self.owner = owner
        self._hosts = {f"{name}:{port}" for name in (HOST, "localhost")}
        if port == 80:  # clients leave it out
            self._hosts |= {HOST, "localhost"}

    def hosts(self) -> Container[str]:
        return self._hosts if self.owner.host == HOST else _Any()

    def error(self, status: HTTPStatus, sentence: str) -> dict[str, Any]:
        """An error in the form of the OpenAI protocol."""
        kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
        return {"error": {"message": sentence, "type": kind, "code": int(status)}}

    def admit(self, request: Request) -> None:
        """Refuse a request without the API key."""
        given = request.header("Authorization").removeprefix("Bearer ").strip() or request.header("X-Api-Key").strip()
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
        if what != "models":
            raise _not_found("there is nothing to get at this path")
        return reply.send_json({"object": "list", "data": [{"id": owner.model, "object": "model"}]})

    def _post(self, what: str, session: Session, request: Request, reply: Reply) -> None:
        if what in ("reward", "end"):
            if session.id == DEFAULT:
                raise _not_found(f"{what} is for an episode: post it to the base URL of one")
            if what == "end" or not _pay(session, request.body):
                session.ended.set()
            return reply.send_json({"ok": True})
        if what not in PROTOCOLS:
            raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, "this path takes no POST")
        if session.ended.is_set():
            raise _not_found("the session has ended: its reward was posted, or its end")
        protocol = PROTOCOLS[what]
        asked = protocol.read(request.body, session)
        self._check_model(asked.model)
        question = Question(session, asked)
        self.owner.questions.put(question)
        items = question.items(self.owner.seconds)
        if not asked.stream:
            answers = sorted((one for one in items if isinstance(one, Answered)), key=lambda one: one.index)
            return reply.send_json(protocol.whole(answers, asked, session))
        first = next(items)  # what is refused is refused before the stream begins
        return reply.stream(protocol.stream(chain([first], items), asked, session), "text/event-stream")

    def _check_model(self, name: str) -> None:
        if self.owner.strict and name not in ("", self.owner.model, "burnish"):
            raise _not_found(f"there is no model {name!r} here; there is {self.owner.model!r}")


def _not_found(why: str) -> Refused:
    return Refused(HTTPStatus.NOT_FOUND, why)


def _pay(session: Session, body: bytes) -> bool:
    """Note the reward in a body: of a reply, where it names one (True), or of the session."""
    try:
        given = parse_json(body)
    except ValueError:
        given = None
    name = given.get("id") if isinstance(given, dict) else None
    reward = _reward(given)
    if name is None:
        session.reward = reward
        return False
    known = {one.partition("-")[2] for talk in session.state.talk.all for one in talk.ids} if session.state else set()
    name = re.sub(r"^(chatcmpl-|resp_|msg_|cmpl-)", "", str(name))
    if name not in known:
        raise BadRequest(f"the episode has no reply with the id {str(name)[:80]!r}; post the id that its answer had")
    session.paid[name] = session.paid.get(name, 0.0) + reward
    return True


def _reward(given: object) -> float:
    try:
        reward = float(given["value"] if isinstance(given, dict) else "")
    except (ValueError, TypeError, KeyError, OverflowError):
        raise BadRequest('a reward is {"value": number}') from None
    if not abs(reward) < float("inf"):
        raise BadRequest("a reward must be a finite number")
    return reward
