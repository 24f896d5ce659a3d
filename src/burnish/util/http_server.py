"""An HTTP server for the loopback or a small network, that no client can block, exhaust or confuse.

One thread (`serve_forever`) accepts connections and reads requests, whole and within limits (util/http_limits.py); a
client that sends nothing, or slowly, or has no token, holds a file descriptor and a small buffer, never a thread.
A complete request that the application admits is answered in a thread of its own, so an answer may take minutes.
Everything raised for one request is the answer to that request.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Protocol

from burnish.util.http_connections import Connection, Connections, State
from burnish.util.http_limits import HEAD_BYTES, LINGER_BYTES, LINGER_SECONDS, Guesses, Limits
from burnish.util.http_message import JSON, Gone, Refused, Reply, Request, answer_of, as_json, read_head

TICK = 0.05  # seconds between two looks at deadlines
BACKLOG = 1024  # connections that wait to be accepted; a client that finds no place tries again after a second
AT_ONCE = 64  # connections that are accepted before those that are open are read again
PAUSE = 0.01  # seconds without accepting, for each wrong token beyond those that are being delayed
_ASK_FOR_BODY = b"HTTP/1.1 100 Continue\r\n\r\n"


class App(Protocol):
    """What a server serves.

    name     of it, in error messages
    headers  of every answer
    """

    name: str
    headers: Mapping[str, str]

    def hosts(self) -> Container[str]:
        """The accepted values of the Host header, in lower case."""
        ...

    def admit(self, request: Request) -> None:
        """Raise Refused for a request that may not be answered, from its head alone. It must be quick."""
        ...

    def answer(self, request: Request, reply: Reply) -> None:
        """Answer a request that was admitted, in a thread of its own; may raise Refused."""
        ...

    def error(self, status: HTTPStatus, sentence: str) -> dict[str, object]:
        """An error as the JSON that clients of this application read."""
        ...


class HttpServer:
    """A server on a socket (`bound`), which listens from now on; `serve_forever` answers."""

    def __init__(self, app: App, listener: socket.socket, limits: Limits) -> None:
        self.app, self.socket, self.limits, self.guesses = app, listener, limits, Guesses()
        self.port: int = listener.getsockname()[1]
        listener.listen(BACKLOG)
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._back: deque[Connection] = deque()  # answered, by threads
        self.connections = Connections(limits)
        self._working = self._delayed = 0
        self._accept_at = 0.0
        self._ending, self._over, self._closed = threading.Event(), threading.Event(), threading.Event()
        self._over.set()
        for end in (self.socket, self._woken, self._waker):
            end.setblocking(False)
        self._selector.register(self._woken, selectors.EVENT_READ, self._wake_up)

    # ------------------------------------------------------------------------------------------------------ the loop

    def serve_forever(self, poll_interval: float = TICK) -> None:
        """Answer until `shutdown`."""
        self._over.clear()
        self._listen(True)
        try:
            looked = 0.0
            while not self._ending.is_set():
                paused = self._accept_at - time.monotonic() if self._accept_at else TICK
                for key, _ in self._selector.select(max(0.0, min(poll_interval, TICK, paused))):
                    own = key.fileobj in (self.socket, self._woken)
                    key.data(key.fileobj) if own else self._safely(self._read, key.data)
                while self._back:
                    self._safely(self._take_back, self._back.popleft())
                if (now := time.monotonic()) >= min(looked + TICK, self._accept_at or now + TICK):
                    looked = now
                    self._expire(now)
        finally:
            self._over.set()

    def shutdown(self) -> None:
        """Make `serve_forever` return, and wait until it has."""
        self._ending.set()
        self._wake()
        self._over.wait()

    def server_close(self) -> None:
        """Stop listening, and close all connections; after `shutdown`, or where `serve_forever` has returned."""
        self._ending.set()
        self._closed.set()
        for connection in list(self.connections.open):
            if connection.state is State.WORK:  # its thread still uses the socket, and closes it
                _hang_up(connection.socket)
            else:
                self._close(connection)
        while self._back:
            self._back.popleft().socket.close()
        self._selector.close()
        for end in (self.socket, self._woken, self._waker):
            end.close()

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # the buffer is full: it wakes anyway; or closed
            self._waker.send(b"\0")

    def _wake_up(self, woken: socket.socket) -> None:
        with contextlib.suppress(OSError):
            woken.recv(4096)

    def _listen(self, listening: bool) -> None:
        """Whether new connections are accepted."""
        if (self.socket in self._selector.get_map()) == listening:
            return
        if listening:
            self._accept_at = 0.0
            self._selector.register(self.socket, selectors.EVENT_READ, self._accept)
        else:
            self._selector.unregister(self.socket)

    def _pause(self, seconds: float) -> None:
        """Accept nothing for so long, after what was paused already."""
        now = time.monotonic()
        self._accept_at = min(max(self._accept_at, now) + seconds, now + 1.0)
        self._listen(False)

    def _expire(self, now: float) -> None:
        """Act on deadlines that have passed."""
        if now >= self._accept_at:
            self._listen(True)
        for connection in [one for one in self.connections.open if one.state is not State.WORK]:
            if now >= connection.deadline:
                self._safely(self._late, connection)

    def _safely(self, act: Callable[[Connection], None], connection: Connection) -> None:
        """Whatever goes wrong with a connection ends that connection, not the server."""
        try:
            act(connection)
        except Exception:
            self._close(connection)

    def _late(self, connection: Connection) -> None:
        """The deadline of a connection has passed."""
        if connection.state is State.DELAY:
            assert connection.refusal is not None
            self._delayed -= 1
            self._refuse(connection, connection.refusal)
        elif connection.state is State.LINGER or not (connection.buffer or connection.request):
            self._close(connection)
        else:
            self._refuse(connection, Refused(HTTPStatus.REQUEST_TIMEOUT, "the request did not arrive in time"))

    # --------------------------------------------------------------------------------------------------- connections

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(AT_ONCE):
            try:
                accepted, address = listener.accept()
            except BlockingIOError:
                return
            except OSError:  # no descriptor is left: an idle connection gives up its own
                oldest = self.connections.oldest()
                self._pause(0.1) if oldest is None else self._close(oldest)
                return
            room, leaving = self.connections.room(str(address[0]))
            for one in leaving:
                self._close(one)
            if not room:
                self._say_full(accepted)
                continue
            accepted.setblocking(False)
            with contextlib.suppress(OSError):
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = Connection(accepted, str(address[0]), time.monotonic() + self.limits.head_seconds)
            self.connections.add(connection)
            self._selector.register(accepted, selectors.EVENT_READ, connection)

    def _say_full(self, accepted: socket.socket) -> None:
        """Refuse a connection for which there is no room."""
        body = as_json(self.app.error(HTTPStatus.SERVICE_UNAVAILABLE, f"the {self.app.name} has no connection left"))
        headers = {**self.app.headers, "Retry-After": "2"}
        with accepted, contextlib.suppress(OSError):
            accepted.setblocking(False)
            accepted.send(answer_of(HTTPStatus.SERVICE_UNAVAILABLE, JSON, body, headers, closing=True))

    def _close(self, connection: Connection) -> None:
        self.connections.remove(connection)
        with contextlib.suppress(KeyError, ValueError, OSError):
            self._selector.unregister(connection.socket)
        connection.socket.close()

    # ------------------------------------------------------------------------------------------------------ requests

    def _read(self, connection: Connection) -> None:
        """Take what a client has sent."""
        if connection not in self.connections:  # closed for another since it became readable
            return
        try:
            data = connection.socket.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data and connection.state is not State.DELAY:
            self._close(connection)
        elif connection.state is State.LINGER:
            connection.dropped += len(data)
            if connection.dropped > LINGER_BYTES:
                self._close(connection)
        else:
            connection.buffer += data
            self._go_on(connection)

    def _go_on(self, connection: Connection) -> None:
        """Do what the bytes in a connection's buffer allow."""
        try:
            if connection.state is State.HEAD:
                self._take_head(connection)
            request = connection.request
            if connection.state is State.BODY and request is not None and len(connection.buffer) >= request.length:
                body = bytes(connection.buffer[: request.length])
                del connection.buffer[: request.length]
                self._work_on(connection, replace(request, body=body))
        except Refused as refused:
            self._turn_away(connection, refused)
        except Exception as error:  # a request ends in its own answer, whatever it raises
            self._refuse(connection, self._failed(error))

    def _take_head(self, connection: Connection) -> None:
        """The request whose head is complete; it may be answered if this raises nothing."""
        limits, buffer = self.limits, connection.buffer
        end = buffer.find(b"\r\n\r\n") + 4
        if end > HEAD_BYTES or (end < 4 and len(buffer) > HEAD_BYTES):
            why = f"a request may have {HEAD_BYTES} bytes of headers"
            raise Refused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, why)
        if end < 4:
            if connection.known and buffer:  # its time begins with the request
                connection.deadline = min(connection.deadline, time.monotonic() + limits.head_seconds)
            return
        request = read_head(bytes(buffer[: end - 4]), connection.client)
        del buffer[:end]
        if request.header("Host").lower() not in self.app.hosts():
            why = f"the Host header does not name this server; use the address that the {self.app.name} printed"
            raise Refused(HTTPStatus.MISDIRECTED_REQUEST, why)
        self.app.admit(request)
        connection.known = True
        if request.length > limits.body_bytes:
            why = f"the body of a request may have {limits.body_bytes} bytes"
            raise Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)
        connection.request = request
        connection.deadline = time.monotonic() + limits.body_seconds
        self.connections.enter(connection, State.BODY)
        if request.header("Expect").lower() == "100-continue" and len(buffer) < request.length:
            connection.socket.send(_ASK_FOR_BODY)

    def _turn_away(self, connection: Connection, refused: Refused) -> None:
        """Refuse a request; one with a wrong token waits for its answer, and holds its place if the client leaves."""
        delay = self.guesses.wrong(connection.client) if refused.guess else 0.0
        if not delay:
            self._refuse(connection, refused)
        elif self._delayed >= self.limits.guesses:
            self._close(connection)
            self._pause(PAUSE)
        else:
            self._delayed += 1
            connection.refusal, connection.deadline = refused, time.monotonic() + delay
            self._selector.unregister(connection.socket)
            self.connections.enter(connection, State.DELAY)

    def _refuse(self, connection: Connection, refused: Refused) -> None:
        """Send an error, and close the connection once the client has had a moment to read it.

        What it sent after the request is read and dropped: closed with unread bytes, a connection is reset, and the
        client may never see the answer.
        """
        body = as_json(self.app.error(refused.status, str(refused)))
        try:
            connection.socket.send(answer_of(refused.status, JSON, body, self.app.headers, closing=True))
        except OSError:
            self._close(connection)
        else:
            self._linger(connection)

    def _linger(self, connection: Connection) -> None:
        """End a connection after an answer: nothing more is sent, and what still comes is dropped for a moment."""
        try:
            connection.socket.shutdown(socket.SHUT_WR)
            if connection.socket not in self._selector.get_map():
                self._selector.register(connection.socket, selectors.EVENT_READ, connection)
        except OSError:
            self._close(connection)
            return
        connection.buffer.clear()
        connection.request, connection.deadline = None, time.monotonic() + LINGER_SECONDS
        self.connections.enter(connection, State.LINGER)

    # -------------------------------------------------------------------------------------------------------- answers

    def _work_on(self, connection: Connection, request: Request) -> None:
        """Answer a request in a thread."""
        if self._working >= self.limits.working:
            why = f"the {self.app.name} is answering {self._working} requests already; try again in a moment"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, why)
        self._selector.unregister(connection.socket)
        self.connections.enter(connection, State.WORK)
        self._working += 1
        thread = threading.Thread(target=self._work, args=(connection, request), daemon=True, name="http request")
        try:
            thread.start()
        except RuntimeError:  # the system gives no more threads
            self._working -= 1
            self._selector.register(connection.socket, selectors.EVENT_READ, connection)
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "no thread is left; try again in a moment") from None

    def _work(self, connection: Connection, request: Request) -> None:
        reply = Reply(connection.socket, request, self.app.headers, self.limits.send_seconds)
        try:
            try:
                self.app.answer(request, reply)
            except Refused as refused:
                self._tell(reply, refused)
            except Gone:
                raise
            except Exception as error:  # as in _go_on
                self._tell(reply, self._failed(error))
        except Gone:
            connection.gone = True
        finally:
            connection.closing = reply.closing
            self._back.append(connection)
            self._wake()
            if self._closed.is_set():
                connection.socket.close()

    def _tell(self, reply: Reply, refused: Refused) -> None:
        """Send an error, unless a part of another answer has been sent, which only the connection's end can end."""
        if reply.begun:
            raise Gone
        reply.send_json(self.app.error(refused.status, str(refused)), refused.status)

    def _failed(self, error: Exception) -> Refused:
        why = f"the {self.app.name} failed to answer ({type(error).__name__})"
        return Refused(HTTPStatus.INTERNAL_SERVER_ERROR, why)

    def _take_back(self, connection: Connection) -> None:
        """A connection whose request has been answered waits for the next one, or ends."""
        self._working -= 1
        connection.request = None
        if connection.gone:
            self._close(connection)
            return
        connection.socket.setblocking(False)
        if connection.closing:
            self._linger(connection)
            return
        connection.deadline = time.monotonic() + self.limits.idle_seconds
        self._selector.register(connection.socket, selectors.EVENT_READ, connection)
        self.connections.enter(connection, State.HEAD)
        self._go_on(connection)  # the next request may have arrived with this one


def bound(where: tuple[str, int] | tuple[str, int, int, int], family: socket.AddressFamily) -> socket.socket:
    """A socket at an address of this machine, which does not listen yet; port 0 takes a free one. Raises OSError."""
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
    except BaseException:
        listener.close()
        raise
    return listener


def _hang_up(connection: socket.socket) -> None:
    """End a connection that a thread uses: the thread sees the end."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
