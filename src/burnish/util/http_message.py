"""Requests of HTTP/1.1 as bytes, and answers: strict, so that two programs never disagree where a request ends."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

from burnish.util.http_limits import PATH_CHARACTERS

METHODS = ("GET", "POST")
JSON = "application/json"
_START = re.compile(r"([A-Za-z]{1,16}) (\S+) HTTP/1\.([01])")
_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_LENGTH = re.compile("[0-9]{1,18}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_ONCE = ("host", "content-length", "authorization", "origin", "x-burnish-secret")  # that may not be there twice


class Refused(Exception):
    """A rejected request: the HTTP status, and the reason in one sentence. guess: it had a wrong token."""

    def __init__(self, status: HTTPStatus, sentence: str, *, guess: bool = False) -> None:
        super().__init__(sentence)
        self.status, self.guess = status, guess


class Gone(Exception):
    """The client hung up, or did not read its answer in time."""


@dataclass(frozen=True)
class Request:
    """A request. headers: values by name in lower case, in their order; body: all of it, once it has arrived."""

    method: str
    target: str
    headers: Mapping[str, tuple[str, ...]]
    client: str
    length: int = 0
    closing: bool = False  # whether the client wants no further request on this connection
    body: bytes = field(default=b"", repr=False)

    def header(self, name: str) -> str:
        """The one value of a header; "" where there is none, the first where there are several."""
        return self.headers.get(name.lower(), ("",))[0]


def read_head(head: bytes, client: str) -> Request:
    """The request whose request line and headers these bytes are; raises Refused."""
    lines = head.decode("latin-1").split("\r\n")
    start = _START.fullmatch(lines[0])
    if start is None:
        raise bad("the request line is not one of HTTP/1.1")
    method, target, minor = start.groups()
    if method not in METHODS:
        raise Refused(HTTPStatus.NOT_IMPLEMENTED, f"the method {method} is not known here")
    if len(target) > PATH_CHARACTERS:
        raise Refused(HTTPStatus.REQUEST_URI_TOO_LONG, f"an address may have {PATH_CHARACTERS} characters")
    if not target.startswith("/"):
        raise bad("the path of a request begins with /")
    headers: dict[str, tuple[str, ...]] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not _NAME.fullmatch(name):
            raise bad("a line of the headers has no name and value")
        headers[name.lower()] = (*headers.get(name.lower(), ()), value.strip(" \t"))
    if any(_CONTROL.search(line) for line in lines):
        raise bad("a request may not contain control characters")
    for name in _ONCE:
        if len(headers.get(name, ())) > 1:
            raise bad(f"the header {name.title()} was sent more than once")
    length = _length(method, headers)
    closing = minor == "0" or "close" in ",".join(headers.get("connection", ())).lower()
    return Request(method, target, headers, client, length, closing)


def _length(method: str, headers: Mapping[str, tuple[str, ...]]) -> int:
    """The number of bytes of the body. Only a Content-Length can announce one."""
    if "transfer-encoding" in headers:
        raise bad("a request may not have a Transfer-Encoding; send the body with its Content-Length")
    text = headers.get("content-length", ("0",))[0]
    if not _LENGTH.fullmatch(text):
        raise bad("Content-Length must be a whole number")
    if int(text) and method != "POST":
        raise bad(f"a {method} request has no body")
    return int(text)


def bad(sentence: str) -> Refused:
    return Refused(HTTPStatus.BAD_REQUEST, sentence)


def head_of(status: HTTPStatus, headers: Mapping[str, str]) -> bytes:
    """The status line and headers of an answer."""
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def answer_of(status: HTTPStatus, kind: str, body: bytes, headers: Mapping[str, str], closing: bool) -> bytes:
    """A whole answer. closing: the connection ends with it."""
    told = {"Content-Type": kind, "Content-Length": str(len(body)), **headers}
    if closing:  # or the client sends its next request into a connection that is being closed
        told["Connection"] = "close"
    return head_of(status, told) + body


def as_json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


class Reply:
    """The answer to one request, sent by the thread that found it. begun: whether a part of it has been sent.

    headers: of every answer of the server; closing: whether the connection ends with it
    """

    def __init__(self, to: socket.socket, request: Request, headers: Mapping[str, str], seconds: float) -> None:
        self._to, self._headers, self._seconds, self._deadline = to, headers, seconds, 0.0
        self.begun, self.closing = False, request.closing

    def send(
        self, body: bytes, kind: str, status: HTTPStatus = HTTPStatus.OK, headers: Mapping[str, str] | None = None
    ) -> None:
        """A whole answer."""
        self._write(answer_of(status, kind, body, {**self._headers, **(headers or {})}, self.closing))

    def send_json(self, value: object, status: HTTPStatus = HTTPStatus.OK) -> None:
        self.send(as_json(value), JSON, status)

    def stream(self, pieces: Iterable[bytes], kind: str) -> None:
        """An answer in pieces, which ends with the connection."""
        self.closing = True
        self._write(head_of(HTTPStatus.OK, {"Content-Type": kind, **self._headers, "Connection": "close"}))
        for piece in pieces:
            self._write(piece)

    def _write(self, data: bytes) -> None:
        if not self.begun:
            self.begun, self._deadline = True, time.monotonic() + self._seconds
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise Gone
        try:
            self._to.settimeout(left)  # for all of the data together
            self._to.sendall(data)
        except OSError:
            raise Gone from None
