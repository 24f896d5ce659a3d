"""Limits on the clients of an HTTP server (util/http_server.py): bytes, seconds, connections, wrong tokens."""

from __future__ import annotations

import resource
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

HEAD_BYTES, HEAD_SECONDS = 16_384, 10.0  # request line and all headers; of a stranger the time begins at the connection
PATH_CHARACTERS = 4096  # of the path with its query
IDLE_SECONDS = 300.0  # that a connection which sent the token may wait between two requests
SEND_SECONDS = 20.0  # for a client to read one answer
LINGER_SECONDS, LINGER_BYTES = 1.0, 1 << 20  # what is still read, and dropped, after an answer that ends a connection
DELAYS = (0.0, 0.0, 0.0, 0.25, 0.5, 1.0, 2.0)  # seconds until a wrong token is answered, by earlier wrong tokens
FORGET_SECONDS = 600.0  # after which a client's wrong tokens no longer count
CLIENTS = 1024  # clients whose wrong tokens are counted
OTHER_FILES = 256  # descriptors that are left to the rest of the process


@dataclass(frozen=True)
class Limits:
    """What all clients together, and each of them, may take of a server.

    body_bytes, body_seconds  of one request's body
    connections  that are open; beyond it the one that has been idle longest is closed, strangers' first
    strangers    of those, how many have not sent the token yet
    per_client   of those, how many are of one address
    working      requests that are being answered, each in a thread
    guesses      wrong tokens whose answers are being delayed; beyond it they are not answered
    """

    body_bytes: int
    body_seconds: float
    connections: int
    strangers: int
    per_client: int
    working: int
    guesses: int = 32
    head_seconds: float = HEAD_SECONDS
    idle_seconds: float = IDLE_SECONDS
    send_seconds: float = SEND_SECONDS


def room_for_connections(most: int) -> int:
    """How many connections, at most `most`, leave enough file descriptors to the rest of the process (ulimit -n)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = most if soft == resource.RLIM_INFINITY else max(soft // 4, soft - OTHER_FILES)
    return max(16, min(most, free))


@dataclass
class Guesses:
    """Count of wrong tokens by client. Each delays the answer to the next wrong one; the right token has no delay."""

    delays: tuple[float, ...] = DELAYS
    clock: Callable[[], float] = time.monotonic
    _wrong: OrderedDict[str, tuple[int, float]] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wrong(self, client: str) -> float:
        """Count a wrong token; the seconds after which it is to be answered."""
        with self._lock:
            count, last = self._wrong.pop(client, (0, 0.0))
            now = self.clock()
            count = 0 if now - last > FORGET_SECONDS else count
            self._wrong[client] = (count + 1, now)
            while len(self._wrong) > CLIENTS:
                self._wrong.popitem(last=False)
        return self.delays[min(count, len(self.delays) - 1)]
