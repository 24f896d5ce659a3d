"""Limits on the dashboard's clients: bytes and seconds of a request, open connections, delays for wrong tokens."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

HEAD_BYTES, HEAD_SECONDS = 16_384, 10.0  # request line and all headers; the time includes waiting for the request
BODY_BYTES, BODY_SECONDS = 10_000, 10.0
SEND_SECONDS = 20.0  # for a client to read one response
CONNECTIONS, CONNECTIONS_PER_CLIENT = 64, 16
DELAYS = (0.0, 0.0, 0.0, 0.25, 0.5, 1.0, 2.0)  # seconds until a wrong token is answered, by earlier wrong tokens
FORGET_SECONDS = 600.0  # after which a client's wrong tokens no longer count
CLIENTS = 1024  # clients whose wrong tokens are counted


class TooLarge(Exception):
    """A request exceeds its byte limit."""


class TooSlow(Exception):
    """A request did not arrive in time; `begun` is true if a part of it did."""

    def __init__(self, begun: bool) -> None:
        super().__init__()
        self.begun = begun


class Connection(Protocol):
    """The methods of a socket that this module uses."""

    def recv(self, size: int, /) -> bytes: ...
    def settimeout(self, seconds: float, /) -> None: ...
    def shutdown(self, how: int, /) -> None: ...


class RequestReader:
    """Read requests from a connection, each with a byte limit and one deadline."""

    def __init__(self, connection: Connection, clock: Callable[[], float] = time.monotonic) -> None:
        self._connection, self._clock = connection, clock
        self._buffer = b""
        self._left, self._deadline, self._begun = 0, 0.0, False

    def expect(self, size: int, seconds: float) -> None:
        """Set the byte limit and the deadline of the next request."""
        self._left, self._deadline, self._begun = size, self._clock() + seconds, bool(self._buffer)

    def readline(self, limit: int = -1) -> bytes:
        """Read one line with its newline, or the rest if the client has closed; `http.server` calls this."""
        while (end := self._buffer.find(b"\n") + 1) == 0:
            if len(self._buffer) > self._left:
                raise TooLarge
            if not self._fill():
                end = len(self._buffer)
                break
        return self._take(end if limit < 0 else min(end, limit))

    def read(self, size: int) -> bytes:
        """Read exactly `size` bytes, or fewer if the client has closed."""
        while len(self._buffer) < size and self._fill():
            pass
        return self._take(min(size, len(self._buffer)))

    def close(self) -> None:
        self._buffer = b""

    def _take(self, size: int) -> bytes:
        if size > self._left:
            raise TooLarge
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        self._left -= size
        return taken

    def _fill(self) -> bool:
        """Receive more bytes into the buffer; returns False if the client has closed."""
        left = self._deadline - self._clock()
        if left <= 0:
            raise TooSlow(self._begun)
        self._connection.settimeout(left)
        try:
            more = self._connection.recv(8192)
        except TimeoutError:
            raise TooSlow(self._begun) from None
        self._buffer += more
        self._begun = self._begun or bool(more)
        return bool(more)


@dataclass(eq=False)
class Slot:
    """One open connection. `waiting`: it is idle between requests, so a newer connection may replace it."""

    client: str
    connection: Connection
    since: float
    waiting: bool = True
    trusted: bool = False


@dataclass
class Slots:
    """A limited number of open connections. If all slots are taken, a new connection replaces the longest idle one.

    Connections that sent the token are replaced last, and connections with a request in progress never.
    """

    total: int = CONNECTIONS
    per_client: int = CONNECTIONS_PER_CLIENT
    _open: list[Slot] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def enter(self, client: str, connection: Connection) -> Slot | None:
        """Take a slot for a new connection; None if no connection can be replaced."""
        with self._lock:
            same_client = [slot for slot in self._open if slot.client == client]
            full = self._open if len(self._open) >= self.total else None
            replaceable = same_client if len(same_client) >= self.per_client else full
            if replaceable is not None:
                idle = [slot for slot in replaceable if slot.waiting]
                if not idle:
                    return None
                oldest = min(idle, key=lambda slot: (slot.trusted, slot.since))
                self._open.remove(oldest)
                _hang_up(oldest.connection)
            slot = Slot(client, connection, time.monotonic())
            self._open.append(slot)
            return slot

    def wait(self, slot: Slot, waiting: bool) -> None:
        """Record whether a connection is idle."""
        with self._lock:
            slot.waiting, slot.since = waiting, time.monotonic()

    def leave(self, slot: Slot) -> None:
        with self._lock:
            if slot in self._open:
                self._open.remove(slot)

    def __len__(self) -> int:
        return len(self._open)


@dataclass
class Guesses:
    """Count of wrong tokens by client. Each delays the response to the next wrong one; the right token has no delay."""

    delays: tuple[float, ...] = DELAYS
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _wrong: OrderedDict[str, tuple[int, float]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wrong(self, client: str) -> None:
        """Count a wrong token, and return after its delay."""
        with self._lock:
            count, last = self._wrong.pop(client, (0, 0.0))
            now = self.clock()
            count = 0 if now - last > FORGET_SECONDS else count
            self._wrong[client] = (count + 1, now)
            while len(self._wrong) > CLIENTS:
                self._wrong.popitem(last=False)
        self.sleep(self.delays[min(count, len(self.delays) - 1)])


def _hang_up(connection: Connection) -> None:
    """Shut down both directions, so that the thread that reads from it sees the end. 2 is SHUT_RDWR."""
    try:
        connection.shutdown(2)
    except OSError:  # the client closed it first
        return
