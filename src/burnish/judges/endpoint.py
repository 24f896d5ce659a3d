"""A client for one OpenAI-compatible chat endpoint: POST URL/chat/completions, by the standard library.

Every wait has a limit: a socket operation, an attempt, and all attempts at a question. An answer longer than MAX_BYTES
is not read. Redirects are not followed and proxies are not used, so the key goes to the given host alone. The key is
read from an environment variable when a request is sent; it is in no message, error, cache or configuration.
"""

from __future__ import annotations

import http.client
import ipaddress
import json
import os
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from burnish.core.messages import well_formed
from burnish.core.scorer import ScoringStops
from burnish.judges.limits import Budget, Rate, backoff
from burnish.util.json_types import Json

MAX_BYTES = 8 << 20  # of one answer
PIECE = 1 << 16
RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
STOPS = {401: "does not accept the key", 403: "does not accept the key", 404: "does not know the address or the model"}


class Refused(ScoringStops):
    """The endpoint refuses every question: a wrong key, address or model. The run stops."""


class _Again(Exception):
    """An attempt that failed and may be repeated. after: seconds that the server asks to wait."""

    def __init__(self, why: str, after: float = 0.0) -> None:
        super().__init__(why)
        self.after = after


class _Failed(Exception):
    """A question that this server cannot answer; another attempt would not help."""


@dataclass(frozen=True)
class Reply:
    """What came back for one body: the decoded JSON object; or why there is none."""

    response: dict[str, Json] | None
    why: str = ""


@dataclass
class Endpoint:
    """Where to ask, and how long and how often.

    url          https://HOST/v1, or http://127.0.0.1:PORT/v1: without TLS only to this machine
    key          the environment variable with the API key; where it is not set, no key is sent
    seconds      limit of one attempt, from connecting to the last byte
    total        limit of all attempts at one question, waits included
    attempts     at most so many attempts at a question
    concurrency  questions that are asked at the same time
    """

    url: str
    key: str = "BURNISH_JUDGE_KEY"
    seconds: float = 60.0
    total: float = 300.0
    attempts: int = 6
    concurrency: int = 8
    budget: Budget = field(default_factory=Budget)
    rate: Rate = field(default_factory=Rate)
    first_wait: float = 0.5

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"the judge's address {_public(self.url)!r} is no URL; write https://HOST/v1")
        if parts.username or parts.password or parts.query:
            raise ValueError(
                f"the judge's address {_public(self.url)!r} holds a password or a query, which would be logged; put "
                f"the key into the environment variable {self.key}"
            )
        if parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise ValueError(
                f"the judge's address {self.url!r} would send prompts and the key unencrypted; use https://, or a "
                "tunnel to http://127.0.0.1:PORT"
            )
        try:
            self._host, self._port, self._secure = parts.hostname, parts.port, parts.scheme == "https"
        except ValueError:
            raise ValueError(
                f"the judge's address {self.url!r} has no valid port; write https://HOST:PORT/v1"
            ) from None
        self._path = parts.path.rstrip("/") + "/chat/completions"

    def ask(
        self, bodies: Sequence[Mapping[str, object]], answered: Callable[[int, Reply], None] | None = None
    ) -> list[Reply]:
        """A reply for each body, asked concurrently. `answered` gets each as it comes, in a thread, for a cache.

        Raises BudgetSpent and Refused after the calls under way have ended. Ctrl-C ends them all at once.
        """
        if not bodies:
            return []
        session = _Session(self, answered or (lambda number, reply: None))
        pool = ThreadPoolExecutor(min(self.concurrency, len(bodies)), thread_name_prefix="judge")
        try:
            calls = [pool.submit(session.answer, number, body) for number, body in enumerate(bodies)]
            while wait(calls, timeout=0.5).not_done:  # a wait without an end would not notice Ctrl-C everywhere
                pass
            return [call.result() for call in calls]
        finally:
            session.stop()
            pool.shutdown(wait=True, cancel_futures=True)


class _Session:
    """The connections of one `ask`, which can be closed from outside."""

    def __init__(self, endpoint: Endpoint, answered: Callable[[int, Reply], None]) -> None:
        self.endpoint, self.answered = endpoint, answered
        self.refused: Refused | None = None
        self.stopped = threading.Event()
        self._open: set[http.client.HTTPConnection] = set()
        self._lock = threading.Lock()

    def stop(self) -> None:
        """End all waits and reads."""
        self.stopped.set()
        with self._lock:
            open_now = list(self._open)
        for connection in open_now:
            _cut(connection)

    def answer(self, number: int, body: Mapping[str, object]) -> Reply:
        """The reply to one body."""
        if self.refused is not None:
            raise self.refused
        try:
            reply = self._retried(json.dumps(body).encode())
        except Refused as refused:
            self.refused = refused
            raise
        self.answered(number, reply)
        return reply

    def _retried(self, body: bytes) -> Reply:
        """The reply to one body, with retries, within the total limit."""
        end = time.monotonic() + self.endpoint.total
        why = "there was no time for an attempt"
        for attempt in range(1, self.endpoint.attempts + 1):
            if time.monotonic() >= end or not self.endpoint.rate.wait(self.stopped, end):
                break
            try:
                return Reply(self._attempt(body, min(end, time.monotonic() + self.endpoint.seconds)))
            except _Failed as failure:
                return Reply(None, str(failure))
            except _Again as failure:
                why = str(failure)
                pause = max(failure.after, backoff(attempt, str(zlib.crc32(body)), self.endpoint.first_wait))
            if attempt == self.endpoint.attempts or time.monotonic() + pause >= end or self.stopped.wait(pause):
                break
        return Reply(None, f"the judge gave no answer: {why}")

    def _attempt(self, body: bytes, deadline: float) -> dict[str, Json]:
        self.endpoint.budget.spend_call()
        headers = {"Content-Type": "application/json", "Accept": "application/json", "Connection": "close"}
        secret = os.environ.get(self.endpoint.key, "")
        if not (secret.isascii() and secret.isprintable()):
            raise Refused(f"the key in ${self.endpoint.key} cannot be sent: it holds a line break or an odd letter")
        if secret:
            headers["Authorization"] = f"Bearer {secret}"
        try:
            with self._connected(deadline) as connection:
                connection.request("POST", self.endpoint._path, body, headers)
                response = connection.getresponse()
                return self._decoded(response, self._read(connection, response, deadline))
        except (OSError, http.client.HTTPException) as error:  # a time-out is an OSError
            raise _Again(f"{type(error).__name__} while asking {self.endpoint.url}") from None

    @contextmanager
    def _connected(self, deadline: float) -> Iterator[http.client.HTTPConnection]:
        """A connection that is cut at the deadline, whatever it waits for: a server may drip its headers."""
        connection = self._connection(deadline)
        timer = threading.Timer(max(0.0, deadline - time.monotonic()), _cut, (connection,))
        timer.daemon = True
        timer.start()
        with self._lock:
            self._open.add(connection)
        try:
            yield connection
        finally:
            timer.cancel()
            with self._lock:
                self._open.discard(connection)
            connection.close()

    def _connection(self, deadline: float) -> http.client.HTTPConnection:
        left = max(0.001, deadline - time.monotonic())
        host, port = self.endpoint._host, self.endpoint._port
        if self.endpoint._secure:
            return http.client.HTTPSConnection(host, port, timeout=left, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=left)

    def _read(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse, deadline: float
    ) -> bytes:
        """The body, at most MAX_BYTES of it, before the deadline: a server that drips or never ends is cut off."""
        pieces: list[bytes] = []
        size = 0
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or self.stopped.is_set():
                raise _Again(f"no whole answer within {self.endpoint.seconds:g} s")
            if connection.sock is not None:
                connection.sock.settimeout(left)
            piece = response.read1(PIECE)
            if not piece:
                return b"".join(pieces)
            size += len(piece)
            if size > MAX_BYTES:
                raise _Failed(f"the judge's answer is longer than {MAX_BYTES >> 20} MiB")
            pieces.append(piece)

    def _decoded(self, response: http.client.HTTPResponse, body: bytes) -> dict[str, Json]:
        status = response.status
        if status in STOPS:
            raise Refused(
                f"the judge at {self.endpoint.url} {STOPS[status]} (HTTP {status}); check the model's name, the "
                f"address and the environment variable {self.endpoint.key}"
            )
        if status in RETRIED:
            raise _Again(f"HTTP {status}", _retry_after(response))
        if status != 200:
            raise _Failed(f"the judge refused the question (HTTP {status}): {self._said(body)}")
        try:
            answer = json.loads(body)
        except ValueError:
            raise _Again("the answer is not JSON") from None
        except RecursionError:
            raise _Failed("the answer is JSON that is nested too deeply") from None
        if not isinstance(answer, dict):
            raise _Again("the answer is not a JSON object")
        usage = answer.get("usage")
        used = usage.get("total_tokens") if isinstance(usage, dict) else None
        self.endpoint.budget.spend_tokens(used if isinstance(used, int) and used >= 0 else len(body) // 4)
        return answer

    def _said(self, body: bytes) -> str:
        """The beginning of a server's message, without the key, which some servers repeat."""
        text = " ".join(body[:2000].decode("utf-8", "replace").split())
        secret = os.environ.get(self.endpoint.key, "")
        return (text.replace(secret, "***") if secret else text)[:200]


def content_of(response: Mapping[str, Json]) -> str | None:
    """The text of the first choice; None where the object has none."""
    message = _first_choice(response).get("message")
    text = message.get("content") if isinstance(message, dict) else None
    return well_formed(text) if isinstance(text, str) else None


def first_token_logprobs(response: Mapping[str, Json]) -> dict[str, float]:
    """Token text -> log-prob, of the first token of the first choice; empty where the server gives none."""
    logprobs = _first_choice(response).get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    first = content[0] if isinstance(content, list) and content and isinstance(content[0], dict) else {}
    listed = first.get("top_logprobs")
    rows = [row for row in (listed if isinstance(listed, list) else []) if isinstance(row, dict)]
    pairs = [(row.get("token"), row.get("logprob")) for row in rows]
    return {token: float(logp) for token, logp in pairs if isinstance(token, str) and isinstance(logp, int | float)}


def _first_choice(response: Mapping[str, Json]) -> dict[str, Json]:
    choices = response.get("choices")
    return choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}


def _cut(connection: http.client.HTTPConnection) -> None:
    with suppress(OSError, AttributeError):  # not connected yet, or closed already
        connection.sock.shutdown(socket.SHUT_RDWR)


def _retry_after(response: http.client.HTTPResponse) -> float:
    seconds = response.getheader("Retry-After") or ""
    return min(60.0, float(seconds)) if seconds.isascii() and seconds.isdigit() else 0.0


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _public(url: str) -> str:
    """An address without what stands before the @ of its host and after its path."""
    head, _, tail = url.rpartition("@")
    return (f"{head.partition('://')[0]}://***@{tail}" if head else tail).partition("?")[0][:100]
